/**
 * Descriptor sets that a tenant uploads as they are (SVC-1), for sets that are too large for a configuration.
 * A set is a blob under the name of its own content: an upload never changes what a service refers to, the
 * same bytes are stored once, and going back is naming the older one.
 */
import { createHash } from "node:crypto";
import { GatewayError } from "../errors/gateway-error.ts";
import { readAll, tenantKey, type BlobEntry, type BlobStore } from "../ports/blob-store.ts";
import type { Page, PageRequest } from "../ports/page.ts";
import type { TenantConfig } from "../tenant-config.ts";
import type { Descriptors } from "./descriptors.ts";
import { ParameterSchemas } from "./parameters.ts";
import { DescriptorSet, KnownSets, readSet } from "./uploaded.ts";

/** Sets of one tenant. */
export const mostDescriptorSets = 100;

const mediaType = "application/x-protobuf";
const idPattern = /^fds_[0-9a-f]{40}$/;

export interface StoredDescriptorSet {
  /** `fds_…`: what its content comes to. */
  readonly id: string;
  readonly bytes: number;
  /** Epoch milliseconds. */
  readonly createdAt: number;
}

type Deps = { readonly blobs: BlobStore };

/**
 * @returns the set, and whether it was there before
 * @throws GatewayError `invalid_definition` saying what is wrong with it; `conflict` where there are too many
 */
export async function storeDescriptorSet(
  { blobs }: Deps,
  tenant: string,
  bytes: Uint8Array,
): Promise<{ readonly stored: StoredDescriptorSet; readonly descriptors: Descriptors; readonly isNew: boolean }> {
  const descriptors = await check(bytes);
  const id = descriptorSetId(bytes);
  const known = await all(blobs, tenant);
  const before = known.find((set) => set.id === id);
  if (before !== undefined) return { stored: before, descriptors, isNew: false };
  if (known.length >= mostDescriptorSets) {
    throw new GatewayError(
      "conflict",
      `A tenant has at most ${mostDescriptorSets} descriptor sets; delete one that is not used.`,
    );
  }
  const isNew = await blobs.put(keyOf(tenant, id), bytes, { mediaType, ifAbsent: true });
  const info = await blobs.head(keyOf(tenant, id));
  const stored = { id, bytes: bytes.byteLength, createdAt: info?.modifiedAt ?? Date.now() };
  return { stored, descriptors, isNew };
}

export function descriptorSetId(bytes: Uint8Array): string {
  return `fds_${createHash("sha256").update(bytes).digest("hex").slice(0, 40)}`;
}

/** All that the tenant has, as they were uploaded. */
export async function descriptorSetBytes(
  { blobs }: Deps,
  tenant: string,
): Promise<readonly { readonly id: string; readonly bytes: Uint8Array }[]> {
  const read: { readonly id: string; readonly bytes: Uint8Array }[] = [];
  for (const { id } of await all(blobs, tenant)) {
    const found = await blobs.get(keyOf(tenant, id));
    if (found !== undefined) read.push({ id, bytes: await readAll(found.body) });
  }
  return read;
}

/** @throws GatewayError `invalid_definition` */
async function check(bytes: Uint8Array): Promise<Descriptors> {
  const descriptors = readSet(bytes, {
    param: "body",
    advice: "send what 'protoc --include_imports --descriptor_set_out' or 'buf build -o' has written, as it is",
  });
  if (descriptors.methods.size === 0) throw unusable("it holds no service");
  try {
    await new DescriptorSet(descriptors).codec(true);
    const schemas = new ParameterSchemas(descriptors);
    for (const { input } of descriptors.methods.values()) schemas.of(input);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    throw unusable(error.message.replace(/\.$/, ""), error);
  }
  return descriptors;
}

function unusable(reason: string, cause?: unknown): GatewayError {
  return new GatewayError(
    "invalid_definition",
    `'body' cannot be used: ${reason}. Make it with 'protoc --include_imports --descriptor_set_out'.`,
    { param: "body", cause },
  );
}

/** Newest first unless told otherwise. */
export async function listDescriptorSets(
  { blobs }: Deps,
  tenant: string,
  { limit, order, after }: PageRequest,
): Promise<Page<StoredDescriptorSet>> {
  const sets = await all(blobs, tenant);
  if (order === "desc") sets.reverse();
  const start = after === undefined ? 0 : sets.findIndex(({ id }) => id === after) + 1;
  const left = after !== undefined && start === 0 ? [] : sets.slice(start);
  return { data: left.slice(0, limit), hasMore: left.length > limit };
}

/** By the time they were uploaded. */
async function all(blobs: BlobStore, tenant: string): Promise<StoredDescriptorSet[]> {
  const prefix = `${tenantKey(tenant, "descriptors")}/`;
  const entries = await blobs.list(prefix, { limit: mostDescriptorSets * 2 });
  return entries
    .map((entry) => ({ id: idOf(entry), bytes: entry.bytes, createdAt: entry.modifiedAt }))
    .sort((a, b) => a.createdAt - b.createdAt || a.id.localeCompare(b.id));
}

function idOf({ key }: BlobEntry): string {
  return key.slice(key.lastIndexOf("/") + 1);
}

function keyOf(tenant: string, id: string): string {
  return tenantKey(tenant, "descriptors", id);
}

/** Undefined: there is none. */
export async function findDescriptorSet(
  { blobs }: Deps,
  tenant: string,
  id: string,
): Promise<{ readonly stored: StoredDescriptorSet; readonly descriptors: Descriptors } | undefined> {
  if (!idPattern.test(id)) return undefined;
  const found = await blobs.get(keyOf(tenant, id));
  if (found === undefined) return undefined;
  const bytes = await readAll(found.body);
  const stored = { id, bytes: bytes.byteLength, createdAt: found.info.modifiedAt };
  return { stored, descriptors: readSet(bytes, { param: id, advice: "upload it again" }) };
}

/** Services whose configuration refers to a set. */
export function usersOf({ services }: Pick<TenantConfig, "services">, id: string): readonly string[] {
  return services
    .filter(({ scheme, config }) => scheme === "svc" && JSON.stringify(config).includes(`"${id}"`))
    .map(({ scheme, serviceId }) => `${scheme}://${serviceId}`);
}

/** @returns false where there is none. @throws GatewayError `conflict` naming the services that use it, or may */
export async function deleteDescriptorSet(
  { blobs }: Deps,
  config: Pick<TenantConfig, "tenant" | "services" | "unreadable">,
  id: string,
): Promise<boolean> {
  if (!idPattern.test(id)) return false;
  const key = keyOf(config.tenant, id);
  if ((await blobs.head(key)) === undefined) return false;
  const users = usersOf(config, id);
  if (users.length > 0) {
    const named = users.slice(0, 5).join(", ");
    throw new GatewayError("conflict", `'${id}' is used by ${named}; let them use another set first.`, { param: "id" });
  }
  const unknown = config.unreadable.find(({ kind }) => kind === "tool_service");
  if (unknown !== undefined) {
    throw new GatewayError(
      "conflict",
      `'${id}' may be used by the tool service '${unknown.id}'. ${unknown.message} Delete that service first, or wait for the release that can read it.`,
      { param: "id" },
    );
  }
  await blobs.delete(key);
  return true;
}

/** Sets that this process has read; what has one name never changes. */
export class DescriptorSets {
  readonly #blobs: BlobStore;
  readonly #known = new KnownSets<`${string} ${string}`>();

  constructor({ blobs }: Deps) {
    this.#blobs = blobs;
  }

  /** Undefined: the tenant has no such set. */
  async open(tenant: string, id: string): Promise<DescriptorSet | undefined> {
    const key = `${tenant} ${id}` as const;
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const found = await findDescriptorSet({ blobs: this.#blobs }, tenant, id);
    return found === undefined ? undefined : this.#known.keep(key, new DescriptorSet(found.descriptors));
  }
}
