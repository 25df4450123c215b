"""What a project declares itself: manifests and locks, read leniently and within bounds."""
