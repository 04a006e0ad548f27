"""`dq bench`: what dq does on this machine, measured on a throw-away instance of the whole of it.

Loads, receivers and what dq is compared with run in processes of their own, so that the CPU of
each side can be told apart. A module measures one thing and answers its figures (figures.py);
run.py puts them in order, report.py and plot.py show them. Nothing of dq imports this but the
command; nothing here reaches into a running dq other than through its API and its node.
"""
