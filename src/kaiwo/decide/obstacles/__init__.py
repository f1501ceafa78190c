"""What keeps waiting work from starting, in numbers and facts."""
