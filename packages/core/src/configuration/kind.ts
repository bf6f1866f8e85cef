/**
 * A kind of thing that a tenant configures, as documents of its configuration know it (decision 0052). What is read,
 * checked and written is said once for each kind, over what its own routes do: functions/http/configuration.
 */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import type { JsonObject, JsonValue } from "../json.ts";
import type { Reference } from "../services/references.ts";
import type { TenantConfig } from "../tenant-config.ts";
import type { KindName } from "./names.ts";
import type { FirstEffect } from "./rehearse.ts";

/** What the tenant has. */
export interface Live {
  readonly id: string;
  /** As it stands in a document. */
  readonly item: JsonValue;
}

/** What a kind works with: nothing is written but through `core`, by whom `context` says. */
export interface Work {
  readonly core: CoreDeps;
  /** Its configuration is that of now, or in a rehearsal what it will be by then. */
  readonly context: CallContext;
  /**
   * Id of what has this name. Undefined: it comes with the document that is rehearsed.
   * @throws GatewayError `invalid_request` where there is none, or several are
   */
  readonly idOf: (kind: KindName, name: string) => string | undefined;
  /** Will this reference be gone once all is done? */
  readonly goes: (reference: NamedReference) => boolean;
}

/** Of services/references.ts. */
export type NamedReference = Pick<Reference, "kind" | "id" | "field" | "value">;

export interface Change {
  readonly item: JsonValue;
  /** What it replaces; undefined: it is new. */
  readonly before: Live | undefined;
  /** Fields of the item that are new or other than before. */
  readonly changed: JsonObject;
}

/** What the rehearsal of a change came to, and what it was rehearsed with. */
export interface Rehearsed {
  readonly effect: FirstEffect | undefined;
  readonly core: CoreDeps;
}

export interface Room {
  readonly most: number;
  readonly there: number;
  /** `agents` */
  readonly called: string;
}

export interface Kind {
  /** Of a field that holds one thing, and no list: what comes of what there is and what is asked for. */
  readonly merge?: (live: JsonValue, asked: JsonValue) => JsonValue;
  /** Several may have one name: those that are equal belong together, and the rest in their order. */
  readonly repeats?: true;
  /** By which it is known in every tenant. Of what is no item it may be nothing. */
  identify(item: JsonValue): string;
  read(work: Work): Promise<readonly Live[]>;
  /**
   * As `read` would say it: checked by the route's own schema, with its defaults.
   * @throws GatewayError whose `param` is the place within the item
   */
  parse(work: Work, item: unknown): Promise<JsonValue> | JsonValue;
  /** @returns its id, where others name it @throws GatewayError what the routes throw, their `param` as they spell it */
  write(work: Work, change: Change): Promise<string | undefined>;
  /** Absent: it is never removed. */
  remove?(work: Work, live: Live): Promise<void>;
  /** Where a `param` of the routes stands in the item. */
  place?(param: string): string;
  /** Does it name what a reference has as its value? Absent: where that is one of its texts. */
  names?(item: JsonValue, value: string): boolean;
  /** Names of the credentials that it needs. */
  credentials?(item: JsonValue): readonly string[];
  /** Names by which documents know credentials that the tenant has under others. */
  holds?(config: TenantConfig): readonly string[];
  /** The configuration once this is done; for kinds that others name. */
  foresee?(config: TenantConfig, change: Change, rehearsed: Rehearsed): Promise<TenantConfig> | TenantConfig;
  without?(config: TenantConfig, live: Live): TenantConfig;
  /** As many as a tenant may have, and how many there are, with those that stand in no document. */
  room?(work: Work): Promise<Room> | Room;
}

export type Kinds = { readonly [Name in KindName]: Kind };
