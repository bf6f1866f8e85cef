/**
 * Persistence of what asynchronous VCP plugins owe: which call a callback's token names, which task ids are
 * whose, and what of their results is still to be used. Rules as in repos.ts: the tenant comes first, one
 * function is one database round trip. Contract: test/contract/vcp-callbacks-repo.ts.
 */
import type { NewEvent } from "../realtime/connection.ts";

/** Whose a result is: only its own caller, user and session see it. */
export interface TaskOwner {
  readonly callerId: string;
  readonly userId: string | null;
  readonly sessionId: string | null;
}

/** One attempt of a call, which a plugin process was started for. */
export interface CallAttempt {
  readonly callId: string;
  readonly attempt: number;
}

export interface NewCallback extends CallAttempt, TaskOwner {
  /** SHA-256 of the token, hexadecimal: the token itself is kept nowhere. */
  readonly hash: string;
  readonly plugin: string;
  /** Milliseconds that the token is good for. */
  readonly lifetimeMs: number;
  /** Milliseconds that results of its tasks are kept. */
  readonly keptMs: number;
}

export interface OpenCallback extends CallAttempt {
  readonly plugin: string;
}

export interface VcpTask extends CallAttempt, TaskOwner {
  readonly plugin: string;
  readonly taskId: string;
  /** Its result is in the blob store. */
  readonly done: boolean;
}

export interface CompletedTask {
  readonly task: VcpTask;
  readonly ends: boolean;
  readonly told: boolean;
}

export type TaskName = Pick<VcpTask, "plugin" | "taskId">;

/** `foreign`: the id belongs to another call; `full`: the call has as many as it may. */
export type Binding = "bound" | "foreign" | "full";

export interface VcpCallbackRepo {
  /** Before the process starts. Again with the same call and attempt: the newer token counts. */
  open(tenant: string, callback: NewCallback): Promise<void>;
  /** `undefined`: no token of this tenant, or too old. */
  find(tenant: string, hash: string): Promise<OpenCallback | undefined>;
  /** A callback has come: the task is the call's from now on, and its result is about to be stored. */
  bind(tenant: string, call: CallAttempt, task: TaskName): Promise<Binding>;
  /**
   * The plugin has answered, and named the task whose result ends the call; null: the first result does.
   * `done`: a callback was faster, and has brought that result.
   */
  answer(
    tenant: string,
    call: CallAttempt,
    task: TaskName | null,
  ): Promise<{ readonly binding: Binding; readonly done: VcpTask | undefined }>;
  task(tenant: string, name: TaskName): Promise<VcpTask | undefined>;
  /**
   * The result is in the blob store. `ends`: it is the one that ends the call, unless the plugin has not
   * answered yet. `event`: written with it, the first time alone, where somebody listens (`told`).
   */
  complete(tenant: string, name: TaskName, event?: NewEvent): Promise<CompletedTask | undefined>;
  /** The call has what this result can give it. */
  settle(tenant: string, name: TaskName): Promise<void>;
  /** Has the plugin of this call answered, and works on? */
  isAnswered(tenant: string, callId: string): Promise<boolean>;
  /** Of all tenants: results that should have ended their calls and have not. */
  late(limit: number): Promise<readonly { readonly tenant: string; readonly task: VcpTask }[]>;
  /** Of all tenants: tasks whose callback came a while ago, and of whose result nothing is known. */
  stranded(limit: number): Promise<readonly { readonly tenant: string; readonly task: VcpTask }[]>;
  /** There is no result of such a task; after ten minutes none is on its way any more. */
  passOver(tenant: string, name: TaskName): Promise<void>;
  /** Of all tenants: results past their time, each given to one claimant; tokens past theirs are forgotten. */
  takeExpired(limit: number): Promise<readonly { readonly tenant: string; readonly task: VcpTask }[]>;
  remove(tenant: string, name: TaskName): Promise<void>;
}
