/** What a call does to its back end, and whether it may be made once more. */

export type Effect = "read" | "write";

/**
 * How a write may be repeated after its fate became unknown:
 * `never`: no; `natural`: repeating is harmless (PUT, DELETE); `key`: the back end honours an idempotency key;
 * `resume`: the call goes on from its own record, and what it says in the end is what happened.
 */
export type Repeat = "never" | "natural" | "key" | "resume";
