"""What routing is: pure values and state machines, no sockets, no clock."""
