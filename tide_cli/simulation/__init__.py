"""A full-size appliance in simulated time: engine and trainer are models; policies, planner and spool are real.

machine.py and trainer.py model the hardware, acceptance.py the draft, arrivals.py the load; engine.py, ring.py and
learner.py run them under the supervisor's own `Learning`; loop.py puts them together, splits.py chooses what is
compared, answers.py draws the conclusions.
"""
