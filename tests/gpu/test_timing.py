"""Timing without a GPU: made-up stopwatches in place of CUDA events. The events themselves need a GPU."""

import types

import pytest

from iocourse.gpu import timing
from iocourse.gpu.timing import NeedsCuda, Timing, side_by_side, summary, time_of
from tools.bench import device


class Scripted:
    """Stopwatch with laps computed from (work's name, number of its calls); stores the order of calls."""

    def __init__(self, lap):
        self.lap, self.visits = lap, []

    def laps(self, work, repeats):
        work()
        self.visits.append((work.name, repeats))
        return [self.lap(work.name, len(self.visits))] * repeats


def named(name, raises_after=None):
    def work():
        work.calls += 1
        if raises_after is not None and work.calls > raises_after:
            raise RuntimeError(f"{name} is out of order")

    work.name, work.calls = name, 0
    return work


def test_the_summary_is_median_and_quartiles():
    assert summary([5.0, 1.0, 2.0, 4.0, 3.0]) == Timing(3.0, (2.0, 4.0), 5)
    assert summary([7.0]) == Timing(7.0, (7.0, 7.0), 1)
    with pytest.raises(ValueError, match="laps is empty: it must have one lap or more"):
        summary([])


@pytest.mark.parametrize(("lap", "repeats"), [(0.001, 200), (10.0, 20), (1000.0, 5), (0.0, 200)])
def test_as_many_laps_as_fit_the_budget(lap, repeats):
    watch = Scripted(lambda name, visit: lap)
    work = named("one")
    assert time_of(work, stopwatch=watch) == Timing(lap, (lap, lap), repeats)
    assert watch.visits == [("one", 2), ("one", repeats)]
    assert work.calls == timing.WARM_UPS + 2


def test_every_round_begins_with_another_one():
    watch = Scripted(lambda name, visit: 1.0)
    side_by_side({name: named(name) for name in "abc"}, stopwatch=watch, rounds=4, budget_ms=4)
    visits = "".join(name for name, _ in watch.visits)
    assert visits == "abc" + "abc" + "bca" + "cab" + "abc"  # the first three find out how long a lap is


def test_a_drifting_clock_meets_all_alike():
    watch = Scripted(lambda name, visit: float(visit))  # every visit is slower than the last one
    times = side_by_side(
        {name: named(name) for name in "abc"}, stopwatch=watch, rounds=3, budget_ms=1, least=3
    )
    # Visits 4…12: a has 4, 9, 11; b has 5, 7, 12; c has 6, 8, 10. In a fixed order c would come out last.
    assert [times[name].ms for name in "abc"] == [9.0, 7.0, 8.0]
    assert {times[name].repeats for name in "abc"} == {9}


@pytest.mark.parametrize("after", [0, timing.WARM_UPS, timing.WARM_UPS + 1])
def test_what_fails_keeps_its_reason_and_the_others_go_on(after):
    watch = Scripted(lambda name, visit: 1.0)
    times = side_by_side({"good": named("good"), "bad": named("bad", after)}, stopwatch=watch, rounds=2)
    assert isinstance(times["good"], Timing)
    assert str(times["bad"]) == "bad is out of order"


def test_nothing_to_time_is_an_empty_answer():
    assert side_by_side({}, stopwatch=Scripted(lambda name, visit: 1.0)) == {}


def test_without_a_gpu_each_says_so(monkeypatch):
    monkeypatch.setattr(
        timing, "cuda_unavailable_reason", lambda: "there is no CUDA device that torch can use here"
    )
    for call in (timing.CudaStopwatch, lambda: time_of(named("one")), device.device_facts):
        with pytest.raises(NeedsCuda, match="no CUDA device that torch can use here"):
            call()


def test_without_torch_the_reason_is_torch(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert timing.cuda_unavailable_reason() == "torch is not installed here"


class FakeTorch:
    """As much of torch as the stopwatch touches: `now` is when the GPU is done with what was queued so far,
    and `host` the clock of the host, which stands still unless a test moves it.
    """

    def __init__(self):
        self.now, self.log, self.float32, self.int8 = 0.0, [], None, None
        self.host = 0.0
        outer = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at = outer.now = max(outer.now, outer.host)

            def query(self):
                return self.at < outer.host

            def elapsed_time(self, end):
                assert "synchronize" in outer.log, "read before the GPU was done"
                return end.at - self.at

        self.cuda = types.SimpleNamespace(
            is_available=lambda: True,
            current_device=lambda: 0,
            get_device_properties=lambda index: types.SimpleNamespace(L2_cache_size=50 * 2**20),
            Event=Event,
            synchronize=lambda: self.log.append("synchronize"),
        )

    def zeros(self, size, dtype, device):
        assert device == "cuda" and 4 * size == 100 * 2**20, "twice the L2"
        return self

    def empty(self, size, dtype, device):
        assert device == "cuda"
        return self

    def zero_(self):  # the lead
        self.now += 50.0
        self.log.append("lead")

    def sum(self):  # reads, and leaves no line that must be written back
        self.now += 100.0
        self.log.append("flush")


def test_a_lap_is_what_lies_between_its_events(monkeypatch):
    torch = FakeTorch()
    monkeypatch.setitem(__import__("sys").modules, "torch", torch)

    def work():
        torch.now += 1.5
        torch.log.append("work")

    assert timing.CudaStopwatch().laps(work, 3) == [1.5] * 3, "neither lead nor flush is in the time"
    assert torch.log == [*["lead"] * timing.LEADS, "flush", "work"] * 3 + ["synchronize"]


def test_of_staged_work_only_the_second_stage_is_timed(monkeypatch):
    torch = FakeTorch()
    monkeypatch.setitem(__import__("sys").modules, "torch", torch)
    seen = []

    def before():
        torch.now += 40.0
        torch.log.append("before")
        return len(torch.log)

    def work(made):
        torch.now += 1.5
        torch.log.append("work")
        seen.append(made)

    staged = timing.Staged(before, work)
    assert timing.CudaStopwatch().laps(staged, 3) == [1.5] * 3
    assert len(set(seen)) == 3, "every lap has a separate first stage"
    lap = [*["lead"] * timing.LEADS, "before", "flush", "work"]
    assert torch.log == [*lap * 3, "synchronize"], "the GPU is busy while the first stage is queued"
    assert time_of(staged, stopwatch=timing.CudaStopwatch(), budget_ms=6, least=1).repeats == 4


@pytest.fixture
def slow_host(monkeypatch):
    """Return a function that replaces torch and returns work that takes the host the given ms to queue."""

    def put(host_ms):
        torch = FakeTorch()
        monkeypatch.setitem(__import__("sys").modules, "torch", torch)
        monkeypatch.setattr(timing, "perf_counter", lambda: torch.host / 1000)

        def work():
            torch.now = max(torch.now, torch.host) + 1.0
            torch.host += host_ms
            torch.now = max(torch.now, torch.host) + 1.5  # a second launch, for which the device may wait
            torch.log.append("work")

        return torch, work

    return put


def test_where_the_host_is_late_the_lead_is_lengthened_and_those_laps_are_dropped(slow_host):
    torch, work = slow_host(1000.0)  # eight leads of 50 ms and the flush are 500 ms
    laps = timing.CudaStopwatch().laps(work, 3)
    assert laps == [2.5] * 3 and [lap.late for lap in laps] == [False] * 3
    tried = "".join({"lead": "l", "work": "w"}.get(one, "") for one in torch.log).split("w")[:-1]
    assert [len(leads) for leads in tried] == [8, 16, 32, 32, 32], "900 ms were not enough, 1,700 are"
    found = summary(laps)
    assert (found.host_ms, found.host_bound, found.repeats) == (pytest.approx(1000.0), False, 3)


def test_a_host_that_is_late_at_the_longest_lead_is_said_to_bound_the_time(slow_host):
    torch, work = slow_host(10_000.0)  # 64 leads are 3.2 s
    found = time_of(work, stopwatch=timing.CudaStopwatch(), budget_ms=1, least=2)
    assert found.host_bound and found.repeats == 2 and found.host_ms == pytest.approx(10_000.0)
    assert found.ms > 1000, "the device waited"
    assert torch.log.count("lead") / torch.log.count("flush") < timing.MOST_LEADS


def test_half_of_the_laps_decide_whether_the_host_bounds_the_time():
    early, late = timing.Lap(1.0, 0.25, False), timing.Lap(2.0, 0.75, True)
    assert [summary(laps).host_bound for laps in ([early, early, late], [early, late])] == [False, True]
    assert summary([early, late]).host_ms == 0.5 and summary([1.0]).host_ms is None
    assert not summary([1.0]).host_bound


def test_facts_of_a_made_up_gpu():
    made_up = types.SimpleNamespace(
        name="made up", major=9, minor=0, multi_processor_count=7, L2_cache_size=11, total_memory=13
    )
    facts = device.facts_of(made_up, "0.1", device.read_smi("1.2.3, 4.00 W, 5 MHz\n6.7, 8 W, 9 MHz\n"))
    assert facts == {
        "name": "made up", "arch": 90, "multiprocessors": 7, "l2_bytes": 11, "memory_bytes": 13,
        "cuda": "0.1", "driver": "1.2.3", "power_limit": "4.00 W", "clock_limit": "5 MHz",
    }  # fmt: skip
    assert device.read_smi("1.2.3, [N/A], 5 MHz") == ("1.2.3", None, "5 MHz")
    assert device.read_smi("something else") == (None, None, None)


def test_no_nvidia_smi_leaves_its_facts_open(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert device._smi(None) == (None, None, None)


def test_nvidia_smi_is_asked_about_the_gpu_in_use_alone():
    known = device.smi_query(types.SimpleNamespace(uuid="made-up"), "clocks.sm", "-lms", "200")
    assert known == ["nvidia-smi", "--query-gpu=clocks.sm", "-lms", "200", "--id=GPU-made-up"]
    assert device.smi_query(types.SimpleNamespace(), "clocks.sm") == known[:2]
