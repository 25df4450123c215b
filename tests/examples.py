"""How many examples a property is tried on: all of them by `make test`, a few by `make check`."""

from hypothesis import HealthCheck, settings

WHOLE, CHECK = "whole", "check"
FEW = 10

# How long an example takes, or the making of it, is a matter of who else uses the machine.
_patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(WHOLE, _patient)
settings.register_profile(CHECK, _patient, max_examples=FEW)


def examples(many: int) -> settings:
    """Return settings for a property that takes `many` examples to be sure of."""
    is_check = settings.get_current_profile_name() == CHECK
    return settings(max_examples=min(many, FEW) if is_check else many)
