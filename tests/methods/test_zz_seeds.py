from eftgan.methods import METHODS
from eftgan.evaluation.accuracy import forgetting
def test_seeds(learn):
    for epochs in (10, 12):
        for seed in (0,1,2,3):
            row={}
            for name,kw in [("finetune",{}),("lwf",{"strength":1.}),("ewc",{"strength":300.}),("si",{"strength":5.}),("mas",{"strength":.1}),("rwalk",{"strength":10.})]:
                try: row[name]=round(forgetting(learn(METHODS[name](**kw),norm=False,epochs=epochs,rate=.03,seed=seed,out=f"{epochs}-{seed}-{name}").matrix,2),3)
                except Exception as e: row[name]=str(e)[:40]
            print("SEED",epochs,seed,row,flush=True)
