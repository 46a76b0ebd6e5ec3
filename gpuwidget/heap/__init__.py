"""Find which of the user's variables keep which blocks of torch's CUDA memory alive.

Start with ``find_holders.py``; ``heap_walk.py`` follows references, ``reachability.py`` writes names.

Nothing in here runs user code: no property, no ``__getattr__``, no ``__len__`` of a user's class. References
come from Python's garbage collector, which does not call into the object. A search holds the objects only
while it runs. One side effect remains: an object that stores its attributes without a ``__dict__`` gets one
when a name has to be written that leads through it.

Types are compared by ``id``, because hashing or comparing a class runs its metaclass.
"""
