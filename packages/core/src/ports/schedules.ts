/** Persistence of schedules. Rules as in repos.ts. Contract: test/contract/schedules-repo.ts. */
import type { Schedule } from "../schedules/schedule.ts";
import type { NewCall } from "./calls.ts";
import type { Page, PageRequest } from "./page.ts";

export type NewSchedule = Pick<
  Schedule,
  | "id"
  | "name"
  | "taskId"
  | "given"
  | "timing"
  | "timeZone"
  | "startAt"
  | "endAt"
  | "misfire"
  | "target"
  | "task"
  | "deliver"
  | "caller"
  | "paused"
  | "nextAt"
>;

/** A schedule whose time has come, with the configuration that its tenant has. */
export interface DueSchedule {
  readonly tenant: string;
  readonly configVersion: number;
  readonly schedule: Schedule;
}

/** The firings of a schedule go on record, and it is due later: both, or, where somebody else was first, neither. */
export interface Taking {
  readonly id: string;
  /** When it was due. */
  readonly dueAt: number;
  readonly nextAt: number | null;
  readonly takenAt: number | null;
  readonly missedAt: number | null;
  readonly callerId: string;
  readonly firings: readonly NewCall[];
}

export interface ScheduleRepo {
  /** @throws GatewayError `conflict` for a task id that is taken (param `task_id`), or where there are too many */
  create(tenant: string, schedule: NewSchedule): Promise<Schedule>;
  get(tenant: string, id: string): Promise<Schedule | undefined>;
  /** `callerId`: only those of this caller. */
  list(tenant: string, page: PageRequest, callerId?: string): Promise<Page<Schedule>>;
  /** What those that may fire again name: id, name and target. */
  targets(tenant: string): Promise<readonly Pick<Schedule, "id" | "name" | "target">[]>;
  /**
   * Of all tenants that are not suspended, nor among `except`: what is due within `aheadMs`, each tenant's first before
   * anybody's later ones. What ended long ago goes.
   */
  due(options: {
    readonly limit: number;
    readonly aheadMs: number;
    readonly except?: readonly string[];
  }): Promise<{ readonly due: readonly DueSchedule[]; readonly now: number }>;
  /** In one transaction. Returns the ids of firings that are on record and wait for a worker. */
  take(tenant: string, takings: readonly Taking[]): Promise<readonly string[]>;
  /** Calls off what has not begun. Undefined: there is none. */
  pause(tenant: string, id: string): Promise<Schedule | undefined>;
  /** Changes nothing where it is not paused. */
  resume(tenant: string, id: string, nextAt: number | null): Promise<Schedule | undefined>;
  /** Calls off what has not begun. `callerId`: only where it is this caller's. */
  delete(tenant: string, id: string, callerId?: string): Promise<boolean>;
}
