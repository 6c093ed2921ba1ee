"""`python -m tide_cli.engine.serve …`: SGLang's server, with SGLang's own arguments.

Each of its processes imports some six thousand modules. Python's garbage collector would look through what they leave
behind again and again, for a quarter of the time, and find nothing: it rests until TIDE's plugin is loaded, which in
every process comes behind the imports. A process that multiprocessing spawns runs this module before anything else.
"""

from __future__ import annotations

import gc
import runpy

gc.disable()


if __name__ == "__main__":
    runpy.run_module("sglang.launch_server", run_name="__main__")
