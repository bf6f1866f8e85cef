/** What a call would send, as people are shown it: names of credentials where their values go. */
import type { AuthSlot } from "../blind/auth-mapping.ts";
import type { CredentialOrigin } from "../blind/credential-resolver.ts";

export interface ExplainedCredential {
  readonly name: string;
  readonly level: CredentialOrigin["level"] | "missing";
  /** Whose it is, where it is a user's. */
  readonly user_id?: string;
  readonly version?: number;
  readonly location: AuthSlot["location"];
  /** Header, query parameter, placeholder or field of the body that it fills. */
  readonly target: string;
}

export interface ExplainedRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** Text of the body, cut; null where there is none. */
  readonly body: string | null;
  readonly body_bytes: number;
  readonly credentials: readonly ExplainedCredential[];
}
