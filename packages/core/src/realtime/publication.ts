/** What connections are told beside the events of calls, and who takes it to tell them a moment later. */
import type { JsonObject } from "../json.ts";
import type { Audience } from "./connection.ts";

export interface Publication {
  readonly type: string;
  readonly audience: Audience;
  readonly data: JsonObject;
  /** `data` is the whole frame: VCP clients expect no envelope. */
  readonly bare?: boolean;
  /** The call that it is about. Data that is too large is left out, and the call named instead. */
  readonly callId?: string;
  readonly callerId?: string;
  readonly sessionId?: string;
}

/** Takes what may be told a moment later, together with other things. */
export interface FrameSink {
  /** Is there anybody to be told? */
  hearsVcp(tenant: string): boolean;
  tell(tenant: string, publication: Publication): void;
}
