"""What every summary.json has, by section: scripts may rely on it."""

REQUIRED = {
    "jobs": {"submitted", "finished", "running", "waiting", "on_demand", "lost"},
    "migrations": {"planned", "admitted", "in_time", "degraded"},
    "emergencies": {"count", "restored_verified", "work_lost_s"},
    "checkpoints": {"completed", "bytes_sent", "bytes_deduplicated"},
    "rates": {"flows", "worst_goodput_over_grant", "bucket_drops"},
    "research": {"reserve_bytes_per_s", "lowest_share"},
    "cost": {"mean", "k"},
    "delay": {"mean_s", "target_s"},
    "fidelity": {"valid", "reasons"},
}
