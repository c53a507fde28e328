"""The directory that a run leaves behind: its format, who writes it and who reads it.

    environment.json   written first: {format, run_id, began_unix, began, tool, python, iroh, tinygrad, system,
                       distribution, cpu, cores, memory_bytes, locale_encoding, command}; no value of an environment
                       variable
    plan.json          what `--plan --json` prints
    events.jsonl       what happened, a line each, as run_events has it, with `at`, `source`, `event` and its fields
    spans.jsonl        every step of every stage, a line each: {stage, request_id, sequence, part, seq_len, arrived,
                       began, done, back, written, within} (see StepRan)
    stage-<i>.log      what the node of a local stage and its worker wrote to standard error
    instance-<id>.log  what a rented machine wrote, and the last states that vast.ai showed of it
    offers.json        the offers that were looked at: chosen, and left out with the reason (rented)
    rental.json        what was rented and what it cost (rented)
    vast-calls.log     every call to vast.ai and what came of it (rented)
    vast-service.json  what these calls say of the questions that its documentation leaves open (rented)
    run.json           written last: what `--json` prints
    trace.json         written by `report DIR --html`: the run in the Chrome trace event format

Times (`at`, and those of a span) are seconds on one axis, the monotonic clock of the orchestrator; 0 is when the
directory was begun, which was `began_unix` (UTC seconds). Times that a node took are shifted by what round trips say of
its clock (see clock_offset); `within` is how far off they may be, in seconds; it is absent where the orchestrator's own
clock was read. Lines stand in the order in which they came, not in that of `at`. A run that was killed leaves what was
written until then: files may be missing and a last line may be cut. Whatever the run knows as secret is blacked out.

`writer` writes, `reader` reads.
"""
