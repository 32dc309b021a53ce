"""What the framework modules share."""
