"""Which of SGLang's own models a start of the engine imports: the package that SGLANG_EXTERNAL_MODEL_PACKAGE names.

Without that variable SGLang imports every model module that it has, some 250, before it loads the first weight. With
it, it imports the modules of this package, and all of its own only for an architecture that they do not list.
"""
