"""The demo's scenario: lunch time on a campus, 50 minutes of it played in 75 seconds.

It is written in real units, like any scenario, and scaled for a machine of two cores. Why these numbers:

* `bytes = 1/250`, `time = 1/40`: rates are scaled by 40/250 = 0.16. 1 Gbit/s of access becomes 160 Mbit/s, and twelve hosts
  together cannot ask for more bytes than two cores move, hash and fsync. Above 40 hosts bytes shrink further, in
  proportion, so that the whole campus still moves as many bytes a second as 40 hosts would.
* Payloads of 1 to 10 GB (median 3.2 GB, as F2) become 4 to 40 MB. F2's 48 GB would be one transfer for half the demo.
* Run times of 5.3 to 16.7 minutes become 8 to 25 s: a dozen snapshots' worth of work, and long enough to be reclaimed.
* The run begins with a burst of a few more jobs than there are GPUs, ten times as dense as the later stream: it fills
  the campus within seconds, lets some jobs wait and sends some to on-demand. After that jobs arrive so fast that they
  would keep half of the volunteers' GPUs busy if no owner came back. Owners take away 10 to 20 %, jobs restart, and the
  burst is to be worked off: GPUs are busy for 60 to 80 % of their lent time.
* Notices of 80 s to 6 minutes become 2 to 9 s: at a share of 70 % of 160 Mbit/s, a payload alone moves in 0.3 to 3 s.
  So most planned migrations fit, and a large payload under a short notice does not.
* The run begins at 11:20, ten minutes before the lunch peak of F1.
* A script makes sure of two planned reclaims, two emergencies and one with grace, whatever the seed; the first two come
  while the jobs of the burst still run.
"""

from __future__ import annotations

from controller.core.parameters import Protocol, Queue
from experiments.inputs.scenario.law import InverseLaw
from experiments.inputs.scenario.owners import HOUR_S, OwnerEvent, Owners
from experiments.inputs.scenario.parts import Jobs, ResearchFlow
from experiments.inputs.scenario.scenario import Scenario
from topologies import presets
from topologies.errors import SpecError
from topologies.scale import Scale
from topologies.spec import Campus, ResearchReserve
from topologies.units import GBIT_PER_S, MBIT_PER_S

TIME = 1 / 40
BYTES = 1 / 250
FULL_SIZE_HOSTS = 40  # with more, bytes shrink
MIX = (
    presets.GpuShare(presets.RTX3090, 1, 5),
    presets.GpuShare(presets.RTX4090, 1, 4),
    presets.GpuShare(presets.A6000, 1, 3),
)
RUN_TIME = InverseLaw("lognormal", 520.0, 0.35, 320.0, 1000.0)
OFFERED = 0.52  # Erlangs for each volunteer GPU


def demo_scenario(
    hosts: int = 12, buildings: int = 3, on_demand: int = 2, seconds: float = 75.0, seed: int = 1
) -> Scenario:
    """Return a scenario that plays in `seconds`: jobs, owners and research traffic grow with the number of volunteers.

    With fewer hosts than buildings, there are as many buildings as hosts. SpecError for impossible arguments.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 5.0 <= seconds <= 86_400.0:
        raise SpecError("seconds", seconds, "a number from 5 to 86400")
    # Uplinks of 2.5 Gbit/s: two and a half hosts fill one. On-demand slots for all volunteers' jobs at once.
    campus = presets.three_tier(
        hosts,
        min(buildings, hosts) if hosts > 0 else buildings,
        on_demand,
        uplink_bytes_per_s=2.5 * GBIT_PER_S,
        mix=MIX,
        on_demand_slots=min(1024, max(4, -(-hosts // max(1, on_demand)))),
        on_demand_model=presets.A6000,
        reserve=ResearchReserve(beta=0.3, minimum_bytes_per_s=50 * MBIT_PER_S),
        name="demo",
    )
    duration_s = seconds / TIME
    research = _research(campus, hosts)
    ends = (end for flow in research for end in (flow.source, flow.target))
    loyal = tuple(dict.fromkeys(end for end in ends if end[0] == "h"))
    level_start = max(1.5, hosts / 20)
    return Scenario(
        name="demo",
        campus=campus,
        seed=seed,
        duration_s=duration_s,
        # A job should start within half a minute (0.75 s played); r may move by about 1 in a run. Fifty jobs, most of them in
        # one burst, are no past to learn from by replay; a gradient step at a time does better.
        queue=Queue(
            learner="algorithm1",
            on_demand_cost=10.0,
            target_delay_s=30.0,
            level_step_per_s=12.0 / HOUR_S,  # a mean delay 30 s off moves r by 0.1
            level_window=max(5, hosts // 2),
            level_start=level_start,
            level_max=max(8.0, hosts / 2),
            spare_gpus=-(-hosts // 12) if hosts >= 4 else 0,
        ),
        # Periods that, played, are within what processes and sockets can keep: a lease of 3 s, an epoch of half a second.
        # Checkpoints as seldom as paper A's: live, one machine carries the bytes of all hosts.
        protocol=Protocol(restart_s=16.0, control_period_s=20.0, lease_s=120.0, snapshots="copy", checkpoint_share=0.2),
        # Erlangs = arrival rate times mean run time. Steps of 0.25 s played, so that a second of work is four steps.
        jobs=Jobs(
            interarrival=InverseLaw("exponential", RUN_TIME.mean() / (OFFERED * hosts)),
            initial=hosts + round(level_start) + 2,
            payload=InverseLaw("lognormal", 3.2e9, 1.2, 1e9, 10e9),
            run_time=RUN_TIME,
            step_s=10.0,
            dirty_fraction=0.05,
            memory=InverseLaw("lognormal", 10e9, 0.5, 2e9, 24e9),
            min_capabilities=(0.0, 0.0, 8.6),
            loss_budget_s=150.0,
        ),
        # In the lunch peak a host is lent for half an hour and away for about eight minutes.
        owners=Owners(
            hazard_per_s=0.35 / HOUR_S,
            day_start_s=(11 + 20 / 60) * HOUR_S,
            grace_share=0.25,
            grace_s=60.0,
            notice=InverseLaw("exponential", 160.0, minimum=80.0, maximum=360.0),
            absence=InverseLaw("lognormal", 440.0, 0.5, 160.0, 1600.0),
            loyal=loyal,
            script=_script([f"h{n}" for n in range(1, hosts + 1) if f"h{n}" not in loyal], duration_s),
        ),
        research=research,
        scale=Scale(bytes=BYTES * min(1.0, FULL_SIZE_HOSTS / hosts), time=TIME),
    )


def _script(free: list[str], duration_s: float) -> tuple[OwnerEvent, ...]:
    """Return reclaims spread over the run, each on a host of its own if there are enough, each for a few played seconds."""
    away_s = min(240.0, 0.08 * duration_s)
    notice_s = 0.8 * away_s
    plan = (
        (min(400.0, 0.13 * duration_s), notice_s, False),
        (min(680.0, 0.23 * duration_s), 0.0, False),
        (0.45 * duration_s, notice_s, False),
        (0.60 * duration_s, 0.0, False),
        (0.75 * duration_s, min(60.0, notice_s), True),
    )
    hosts = [free[len(free) * number // len(plan)] for number in range(len(plan))]
    events = []
    for host, (at_s, notice, grace) in zip(hosts, plan, strict=True):
        events.append(OwnerEvent(round(at_s, 1), host, "reclaim", round(notice, 1), grace))
        events.append(OwnerEvent(round(at_s + away_s, 1), host, "return"))
    return tuple(sorted(events, key=lambda event: event.at_s))


def _research(campus: Campus, hosts: int) -> tuple[ResearchFlow, ...]:
    """Return flows between the first hosts of buildings, the first of them greedy, each about a fifth of an access link else.

    Their hosts are loyal: an isolated host would cut its owner's flow, and the reserve could not be judged on it. With
    fewer than six hosts there is one flow, to a host of the server room, so that most owners stay free to reclaim.
    """
    if hosts < 6:
        room = next(host.name for host in campus.hosts if host.building == presets.ROOM)
        return (ResearchFlow("h1", room),) if hosts > 1 else ()
    ends = [next(h.name for h in campus.hosts if h.building == b.name) for b in campus.buildings[:-1]][: hosts // 4]
    if len(ends) < 2:
        ends = [ends[0], f"h{hosts}"]
    ring = list(zip(ends, [*ends[1:], ends[0]], strict=True))
    greedy, others = ring[0], ring[1:4]
    return (ResearchFlow(*greedy), *(ResearchFlow(a, b, 0.2 * GBIT_PER_S) for a, b in others))
