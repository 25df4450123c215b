"""What Petri costs, as ratios against the bare machine in one and the same run. `make bench` prints them."""
