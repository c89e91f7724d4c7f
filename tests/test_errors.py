"""How a user's mistake ends a program."""

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from eftgan.errors import UserError, exit_on_user_error


def test_the_launchers_summary_of_a_failed_process_repeats_the_error(tmp_path, monkeypatch, capsys):
    told = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(told))
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit) as ended, exit_on_user_error():
        raise UserError("photos/: no images in it")
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error in process 1: photos/: no images in it\n"
    failure = ProcessFailure(local_rank=1, pid=0, exitcode=2, error_file=str(told))
    assert "traceback : photos/: no images in it" in str(ChildFailedError("train_gan.py", {1: failure}))
