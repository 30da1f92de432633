"""What a broker start does to a store, and how mqstore recovers it: a pure plan, then its application."""
