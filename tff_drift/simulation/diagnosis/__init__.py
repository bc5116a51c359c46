"""Whether clients drift, what that costs, and what follows."""
