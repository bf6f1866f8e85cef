/**
 * Every place where a process may die between two effects. Production code passes through them with a
 * no-op; the kill suite stops the process at each in turn and checks that nothing is lost or doubled.
 */
export const killPoints = [
  "chat.admitted",
  "chat.round-recorded",
  "chat.round-finished",
  "chat.before-settle",
  "chat.settled",
  "invoke.recorded",
  "call.before-send",
  "call.sent",
  "call.answered",
  "call.result-stored",
  "call.finished",
  "async.recorded",
  "async.queued",
  "worker.received",
  "worker.claimed",
  "worker.finished",
  "approval.decided",
] as const;

/** The same while a document comes into its knowledge base. */
export const knowledgeKillPoints = [
  "knowledge.stored",
  "knowledge.recorded",
  "knowledge.extracted",
  "knowledge.embedded",
  "knowledge.chunks-written",
  "knowledge.served",
  "knowledge.reindex-queued",
] as const;

/** The same between an asynchronous plugin's first answer and its callback. */
export const callbackKillPoints = ["callback.awaited", "callback.stored", "callback.completed"] as const;

/** The same in a run of a flow: between its record and what its steps do. */
export const flowKillPoints = ["flow.step-recorded", "flow.step-ended", "flow.before-park"] as const;

/** The same in the work of the tick, which no call passes. */
export const upkeepKillPoints = ["archive.claimed", "archive.written", "archive.finished"] as const;

/** The same while the firing of a schedule goes on record. */
export const scheduleKillPoints = ["schedule.planned", "schedule.recorded", "schedule.queued"] as const;

export type KillPoint =
  | (typeof killPoints)[number]
  | (typeof knowledgeKillPoints)[number]
  | (typeof callbackKillPoints)[number]
  | (typeof flowKillPoints)[number]
  | (typeof upkeepKillPoints)[number]
  | (typeof scheduleKillPoints)[number];

/** Called at each point. */
export type Reach = (point: KillPoint) => void;
