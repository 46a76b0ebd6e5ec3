"""Find which of the user's variables keep which blocks of torch's CUDA memory alive.

Start with ``find_holders.py``; ``heap_walk.py`` follows references, and ``reachability.py`` builds names such
as ``model.0.weight``.

Nothing in this package runs user code: no property, no ``__getattr__``, no ``__len__`` of a user's class. The
references are read from Python's garbage collector, which does not run an object's code. A search keeps
objects alive only while it runs. It has one side effect: if a name that it builds leads through an object
whose ``__dict__`` Python has not created yet, Python creates it.

Types are compared by ``id``, because hashing or comparing a class may run code of the class's metaclass.
"""
