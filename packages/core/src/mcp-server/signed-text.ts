/**
 * Texts that go out to a client and come back with a later request, to whichever instance: signed with the
 * tenant's key, each for its purpose, so that a client can neither make nor change nor exchange them.
 */
import { timingSafeEqual } from "node:crypto";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { canonicalJson, parseJson, type JsonValue } from "../json.ts";

type Signer = Pick<CoreDeps, "sealer">;
type Owner = Pick<CallContext, "tenant" | "config">;

/** @param bound what must be the same when it comes back */
export async function signText(
  deps: Signer,
  owner: Owner,
  bound: readonly string[],
  payload: JsonValue,
): Promise<string> {
  const text = Buffer.from(JSON.stringify(payload)).toString("base64url");
  return `${text}.${await signature(deps, owner, [...bound, text])}`;
}

/** Undefined: it was not made here, or not for this. */
export async function readSignedText(
  deps: Signer,
  owner: Owner,
  bound: readonly string[],
  signed: string,
): Promise<JsonValue | undefined> {
  const [text = "", given = "", ...more] = signed.split(".");
  if (more.length > 0) return undefined;
  const wanted = Buffer.from(await signature(deps, owner, [...bound, text]));
  const found = Buffer.from(given);
  if (wanted.length !== found.length || !timingSafeEqual(wanted, found)) return undefined;
  return parseJson(Buffer.from(text, "base64url").toString("utf8"));
}

function signature({ sealer }: Signer, { tenant, config }: Owner, parts: readonly string[]): Promise<string> {
  return sealer.hash(tenant, config.wrappedKey, canonicalJson({ mcp: parts }));
}
