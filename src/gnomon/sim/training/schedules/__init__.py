"""Pipeline schedules, one file each: `SCHEDULE` of every module here is found by `gnomon.sim.training`."""
