"""The load generator of all benchmarks: prepared bytes over gRPC or HTTP/1.1, closed or open loop, one thread.

It shares its cores with what it measures, so it is made to be cheap: requests are bytes before the timing starts,
answers are taken apart no further than their status and length, and its own CPU time is part of every result. Some
answers are kept, so that whoever ordered the load can decode and judge them afterwards.
"""
