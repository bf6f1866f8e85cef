/** What a worker hears that wants to take a call (`CallRepo.claim`). */
import type { BudgetRefusal } from "../budgets/budget.ts";
import type { Call, UnreadableCall } from "../calls/call.ts";
import type { Waiting } from "../calls/look-again.ts";
import type { Listeners } from "../realtime/connection.ts";
import type { OpenBreaker } from "./tool-services.ts";

export type ClaimResult =
  | {
      readonly call: Call;
      /** Whose the session is that it works in; absent: there is none. */
      readonly sessionOwner?: string;
      readonly listeners?: Listeners;
      readonly openBreakers?: readonly OpenBreaker[];
    }
  | {
      readonly refusal: BudgetRefusal;
      readonly attempt: number;
      readonly parentId: string | null;
      readonly waiting: Waiting;
    }
  /** It is claimed, and its row does not hold what rows hold. */
  | { readonly unreadable: UnreadableCall }
  /** As many calls of the tenant run as may. */
  | { readonly limit: "concurrency"; readonly waiting: Waiting }
  /** Queued, and not to be run before that. */
  | { readonly dueInMs: number }
  | "gone"
  | "busy";
