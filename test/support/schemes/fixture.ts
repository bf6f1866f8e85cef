/**
 * What the suite over all schemes needs of one: a back end that can be told how to behave, and a tool of it.
 * A new scheme adds a file here and a line in `index.ts`; without them test/e2e/schemes.test.ts fails.
 */
import type { ErrorCode } from "@toolyard/core/errors/catalog";
import type { Json } from "../gateway-client.ts";

/**
 * `well`: answers at once. `silent`: takes the call and never answers. `broken`: takes the next call, breaks
 * the connection, and is well after that. `huge`: answers with 10,000,000 bytes or a little more.
 */
export type Mood = "well" | "silent" | "broken" | "huge";

export interface SchemeBackEnd {
  /** `config` of a service that reaches it, with at least one secret where the scheme has secrets. */
  readonly config: Json;
  /** A configuration at which nobody listens. */
  readonly deadConfig: Json;
  /** Literals in `config` that must show nowhere. */
  readonly secrets: readonly string[];
  /** How often the tool was carried out, or begun. */
  calls(): number;
  behave(mood: Mood): void;
  close(): Promise<void>;
}

export interface SchemeFixture {
  /** A tool of the back end. */
  readonly tool: string;
  readonly arguments: Json;
  /** Arguments that do not fit its schema. */
  readonly badArguments: Json;
  /** Does the tool read or write? Writes are not sent again, and end `unknown` where nothing was answered. */
  readonly effect: "read" | "write";
  /** Milliseconds within which a call has reached it for certain, where it does not at once. */
  readonly reachedWithinMs?: number;
  /** How a call ends whose answer is `huge`, where results of that size are nothing that its back ends have. */
  readonly hugeIs?: ErrorCode;
  start(): Promise<SchemeBackEnd>;
}
