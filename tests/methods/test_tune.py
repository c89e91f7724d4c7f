import os, time, pytest
from eftgan.methods import METHODS
from eftgan.evaluation.accuracy import forgetting, average_over_seen
def test_tune(learn):
    spec=eval(os.environ["SPEC"])
    for i,(name,kw) in enumerate(spec):
        t=time.time()
        try: r=learn(METHODS[name](**kw), norm=bool(os.environ.get("NORM")), epochs=float(os.environ["EPOCHS"]), rate=float(os.environ["RATE"]), out=f"r{i}", **eval(os.environ.get("OPT","{}")))
        except Exception as e: print(name,kw,"FAILED",str(e)[:90]); continue
        m=r.matrix
        print(name,kw,[[round(m[i,j],2) for j in range(i+1)] for i in range(3)],"avg",round(average_over_seen(m,2),3),"forg",round(forgetting(m,2),3),round(time.time()-t,1))
