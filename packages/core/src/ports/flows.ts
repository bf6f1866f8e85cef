/** Persistence of flows, their versions and the addresses that start them. Rules as in repos.ts. Contract: test/contract/flows-repo.ts. */
import type { Role } from "../callers/caller.ts";
import type { JsonObject } from "../json.ts";
import type { Effect } from "../tools/effect.ts";
import type { Page, PageRequest, UnreadableItem } from "./page.ts";

/** What the tenant's snapshot knows of a flow that has been published; the definition is read by its hash. */
export interface FlowHead {
  readonly id: string;
  readonly name: string;
  readonly enabled: boolean;
  /** Number of the newest version; the rest of this is said of it. */
  readonly latest: number;
  readonly description: string;
  /** JSON Schema. */
  readonly input: JsonObject;
  readonly effect: Effect;
  /** Rising. A version never changes. */
  readonly versions: readonly { readonly number: number; readonly hash: string }[];
}

/** Something that a definition refers to by a tool URI or a tool's name. */
export interface FlowReference {
  /** `nodes.fetch.uri` */
  readonly field: string;
  readonly value: string;
}

/** A version of a flow; `version` null: the draft. */
export interface FlowPlace {
  readonly id: string;
  readonly name: string;
  readonly version: number | null;
}

/** What of a definition is kept beside it. */
export interface FlowContent {
  /** Canonical JSON. */
  readonly definition: string;
  /** SHA-256 of it. */
  readonly hash: string;
  readonly refs: readonly FlowReference[];
}

export interface FlowRecord {
  readonly id: string;
  /** Unique within the tenant; never changes. */
  readonly name: string;
  readonly enabled: boolean;
  /** The definition that is worked on, JSON; it may have faults. */
  readonly draft: string;
  readonly draftHash: string;
  /** Newest version; null: none was published. */
  readonly latest: number | null;
  readonly latestHash: string | null;
  /** Rises with every change. */
  readonly revision: number;
  readonly createdAt: number;
  readonly updatedAt: number;
}

export interface FlowVersion {
  readonly number: number;
  readonly hash: string;
  readonly description: string;
  /** Caller. */
  readonly publishedBy: string;
  readonly publishedAt: number;
}

export interface NewFlowVersion extends FlowContent {
  readonly description: string;
  readonly input: JsonObject;
  readonly effect: Effect;
  readonly publishedBy: string;
}

export interface FlowHook {
  /** `fhk_…`; also the caller of the runs it starts. */
  readonly id: string;
  readonly flowId: string;
  readonly name: string;
  readonly enabled: boolean;
  /** Must requests be signed as Standard Webhooks say? */
  readonly signed: boolean;
  /** Of whoever made it: its runs may use what that role may. */
  readonly role: Exclude<Role, "operator">;
  /** First characters of the token, for people. */
  readonly hint: string;
  readonly lastUsedAt: number | null;
  readonly createdAt: number;
  readonly updatedAt: number;
}

/** A hook as whoever is at its address has to be checked. */
export interface OpenedHook extends FlowHook {
  readonly flowName: string;
  /** Sealed signing secret. */
  readonly sealed: string | null;
  readonly wrappedKey: string;
  readonly configVersion: number;
}

/** SHA-256 of the token in the address, hexadecimal. */
export interface HookToken {
  readonly tokenHash: string;
  readonly hint: string;
}

/** A shipped flow has no row, and its name is its id. */
export interface HookedFlow {
  readonly flowId: string;
  readonly isShipped: boolean;
}

export interface FlowRepo {
  /** @throws GatewayError `conflict` for a taken name, or too many flows */
  create(
    tenant: string,
    flow: FlowContent & { readonly id: string; readonly name: string; readonly enabled: boolean },
  ): Promise<FlowRecord>;
  get(tenant: string, id: string): Promise<FlowRecord | undefined>;
  list(tenant: string, page: PageRequest): Promise<Page<FlowRecord>>;
  /**
   * `undefined`: no such flow. Raises the config version where `enabled` is given: drafts are nobody's configuration.
   * @throws GatewayError `version_conflict` where it has another revision than expected
   */
  update(
    tenant: string,
    id: string,
    change: { readonly draft?: FlowContent; readonly enabled?: boolean },
    expectedRevision?: number,
  ): Promise<FlowRecord | undefined>;
  /**
   * The draft becomes the next version, where the flow still has this revision; one that is the newest version
   * already stays that. Raises the config version. `undefined`: no such flow.
   * @throws GatewayError `version_conflict`; `conflict` for too many versions
   */
  publish(
    tenant: string,
    id: string,
    version: NewFlowVersion & { readonly revision: number },
  ): Promise<FlowRecord | undefined>;
  /** `undefined`: no such flow. By number. */
  versions(tenant: string, id: string, page: PageRequest): Promise<Page<FlowVersion> | undefined>;
  version(
    tenant: string,
    id: string,
    number: number,
  ): Promise<(FlowVersion & { readonly definition: string }) | undefined>;
  /** The text of a published version. */
  definition(tenant: string, hash: string): Promise<string | undefined>;
  /** What flows refer to, the newest first, and those of which it cannot be read. */
  references(tenant: string): Promise<{
    readonly data: readonly (FlowPlace & { readonly refs: readonly FlowReference[] })[];
    readonly unreadable: readonly (FlowPlace & Pick<UnreadableItem, "message">)[];
  }>;
  /** With its versions and hooks. Raises the config version. */
  delete(tenant: string, id: string): Promise<boolean>;

  /** @throws GatewayError `conflict` for too many hooks of the flow. `undefined`: no such flow. */
  createHook(
    tenant: string,
    hook: HookToken & HookedFlow & Pick<FlowHook, "id" | "name" | "role"> & { readonly sealed: string | null },
  ): Promise<FlowHook | undefined>;
  listHooks(tenant: string, flow: HookedFlow, page: PageRequest): Promise<Page<FlowHook> | undefined>;
  /** A new token ends the one before at once. `resealed` is the secret where the hook has one; `sealed`, in any case. */
  updateHook(
    tenant: string,
    flowId: string,
    id: string,
    change: {
      readonly enabled?: boolean;
      readonly token?: HookToken;
      readonly sealed?: string;
      readonly resealed?: string;
    },
  ): Promise<FlowHook | undefined>;
  deleteHook(tenant: string, flowId: string, id: string): Promise<boolean>;
  /** By the token in its address; notes that it was used. */
  openHook(tenant: string, flowId: string, tokenHash: string): Promise<OpenedHook | undefined>;
}
