"""Random days at a desk: take, end, give up. Nobody is forgotten, overtaken, or let in beside another."""

from random import Random

import pytest

from petri.errors import Busy
from petri.operations.desk import Desk, Share, Turn

SANDBOXES = [f"{tenant}{number}" for tenant in "abc" for number in range(4)]
"""Each with its tenant's name first."""
QUOTA = 6
"""Only of the last tenant."""
STEPS = 200


class Day:
    """A desk, and who must have a turn there."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.most, self.room = chance.randint(1, 5), chance.choice([0, 3, 12, 40])
        self.patience = chance.random()
        """Of those who leave, so many had a place."""
        self.desk = Desk(self.most, self.room)
        self.desk.when_quiet(self.be_told)
        self.told = 0
        self.is_alone = True
        """Whether there is no tenant but the first yet."""
        self.lines: dict[str, list[Turn]] = {}
        """All turns in each sandbox, in the order in which they were taken."""
        self.have_places: set[str] = set()
        self.waiting: list[str] = []
        """Sandboxes that wait for a place, in the order in which they began to."""
        self.round: list[str] = []
        """Their tenants, the one that was given none for longest first."""

    def pass_by(self) -> None:
        """Let one thing after the other happen, and then all turns that are left come to their end."""
        busy = self.chance.uniform(0.4, 0.7)
        others_come = self.chance.randrange(STEPS)
        for step in range(STEPS):
            if step == others_come:
                self.is_alone = False
                self.take("a0")  # or be refused: the desk hears of it either way
            if not self.lines or self.chance.random() < busy:
                self.take(self.chance.choice(SANDBOXES[: 4 if self.is_alone else None]))
            else:
                self.leave_some()
            self.check()
        while self.lines:
            sandbox = self.chance.choice(sorted(self.have_places))
            self.leave(sandbox, self.lines[sandbox][0])
            self.check()

    def be_told(self) -> None:
        self.told += 1

    def take(self, sandbox: str) -> None:
        tenant = sandbox[0]
        is_now = sandbox not in self.lines and self.may_have_place(tenant)
        is_over = tenant == "c" and self.runs_of(tenant) >= QUOTA
        has_no_room = not is_now and not self.may_wait(tenant)
        try:
            turn = self.desk.take(sandbox, Share(tenant, QUOTA * (tenant == "c"), is_alone=self.is_alone))
        except Busy:
            assert is_over or has_no_room
            return
        assert (turn.is_now, is_over, has_no_room) == (is_now, False, False)
        if is_now:
            self.have_places.add(sandbox)
        elif sandbox not in self.lines:
            self.wait_for_place(sandbox)
        self.lines.setdefault(sandbox, []).append(turn)

    def leave_some(self) -> None:
        """Leave a turn that has come, or one that has not."""
        if self.have_places and self.chance.random() < self.patience:
            sandbox = self.chance.choice(sorted(self.have_places))
            self.leave(sandbox, self.lines[sandbox][0])
        else:
            sandbox = self.chance.choice(list(self.lines))
            self.leave(sandbox, self.chance.choice(self.lines[sandbox]))

    def leave(self, sandbox: str, turn: Turn) -> None:
        ran, told = turn.is_now, self.told
        with turn:
            pass
        self.lines[sandbox].remove(turn)
        if ran:
            self.have_places.remove(sandbox)
            if self.lines[sandbox]:
                self.wait_for_place(sandbox)
        if not self.lines[sandbox]:
            del self.lines[sandbox]
            if not ran:
                self.wait_no_more(sandbox)
        self.give_places()
        assert self.told - told == (not self.have_places)

    def wait_for_place(self, sandbox: str) -> None:
        self.waiting.append(sandbox)
        if sandbox[0] not in self.round:
            self.round.append(sandbox[0])

    def wait_no_more(self, sandbox: str) -> None:
        self.waiting.remove(sandbox)
        if not any(other[0] == sandbox[0] for other in self.waiting):
            self.round.remove(sandbox[0])

    def give_places(self) -> None:
        while may := [tenant for tenant in self.round if self.may_have_place(tenant)]:
            tenant = min(may, key=self.places_of)
            sandbox = next(each for each in self.waiting if each[0] == tenant)
            self.have_places.add(sandbox)
            self.wait_no_more(sandbox)
            if tenant in self.round:
                self.round.remove(tenant)
                self.round.append(tenant)

    def runs_of(self, tenant: str) -> int:
        return sum(len(line) for sandbox, line in self.lines.items() if sandbox[0] == tenant)

    def places_of(self, tenant: str) -> int:
        return sum(sandbox[0] == tenant for sandbox in self.have_places)

    def may_have_place(self, tenant: str) -> bool:
        held, free = self.places_of(tenant), self.most - len(self.have_places)
        return free > 0 and (self.is_alone or held == 0 or free > held)

    def may_wait(self, tenant: str) -> bool:
        held = self.runs_of(tenant) - self.places_of(tenant)
        free = self.room + len(self.have_places) - sum(len(line) for line in self.lines.values())
        return free > 0 and (self.is_alone or held == 0 or free > held)

    def check(self) -> None:
        """Only the first in a sandbox that has a place is called, and what is counted is so."""
        for sandbox, line in self.lines.items():
            has_place = sandbox in self.have_places
            assert [turn.is_now for turn in line] == [has_place] + [False] * (len(line) - 1)
        for tenant in "abc":
            runs, places = self.runs_of(tenant), self.places_of(tenant)
            assert self.desk.runs(tenant) == runs
            assert (self.desk.running(tenant), self.desk.waiting(tenant)) == (places, runs - places)
        assert {each for each in SANDBOXES if self.desk.is_busy(each)} == self.lines.keys()


@pytest.mark.parametrize("seed", range(25))
async def test_whoever_waits_is_called_in_turn_and_never_in_vain(seed: int) -> None:
    Day(Random(seed)).pass_by()
