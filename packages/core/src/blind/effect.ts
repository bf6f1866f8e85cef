/** What a request does to its back end, and whether it may be repeated, as far as its definition says. */
import type { Effect, Repeat } from "../tools/effect.ts";
import type { Execution } from "./definition.ts";

export function effectOf({ effect, method }: Pick<Execution, "effect" | "method">): Effect {
  return effect ?? (method === "GET" ? "read" : "write");
}

export function repeatOf({
  idempotency_header: key,
  method,
}: Pick<Execution, "idempotency_header" | "method">): Repeat {
  if (key !== undefined) return "key";
  return method === "PUT" || method === "DELETE" ? "natural" : "never";
}
