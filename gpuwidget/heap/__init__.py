"""From a user's variables to the memory they keep alive: which names lead to which of torch's blocks.

Nothing of the user's runs: no property, no ``__getattr__``, no ``__len__`` of their classes. What an object
refers to is asked of Python's garbage collector, which knows without asking the object. Objects are held only
while the search lasts. Where an object keeps its attributes without a ``__dict__``, one comes into being only
if a further name leads through it, which cannot be written otherwise.

Types are told by their ``id``: to hash or to compare a class runs its metaclass.
"""
