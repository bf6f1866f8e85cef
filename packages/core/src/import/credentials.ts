/**
 * Names for the credentials that imported tools need. A document is foreign input: it may say how its own
 * API is called, but not ask for a credential that was stored for another one. So a name that was not
 * chosen by the caller holds the host that the credential is for.
 */
import type { AuthConfig } from "../blind/definition.ts";
import type { JsonObject } from "../json.ts";
import { shortHash } from "./names.ts";

/** A credential that has to be stored before the tools can be called. */
export interface WantedCredential {
  readonly name: string;
  /** Of the document; null where it names none. */
  readonly scheme: string | null;
  /** What is to be stored. */
  readonly holds: string;
  /** Of a part that is no secret, as the document gives it. */
  readonly suggestedValue?: string;
}

const longestName = 128;

/** `api.example.com:key`; `http` stands in front where the credential would go out in clear text. */
export function ownCredentialName(origin: string, part: string): string {
  const { protocol, host } = new URL(origin);
  const place = `${protocol === "http:" ? "http:" : ""}${host.replace(/[[\]]/g, "")}`;
  const name = `${place}:${part.replace(/[^\p{L}\p{N}_.-]+/gu, "_")}`;
  return name.length <= longestName ? name : `${name.slice(0, longestName - 13)}_${shortHash(name, 12)}`;
}

export function configToJson(config: AuthConfig): JsonObject {
  return JSON.parse(JSON.stringify(config)) as JsonObject;
}
