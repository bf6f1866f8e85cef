/** Knowledge bases as those who manage them see them (KB-1). */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import type { KnowledgeBase } from "../ports/knowledge.ts";
import { changeConfig, needsReindex, usualConfig, type KnowledgeConfig, type KnowledgeConfigChange } from "./config.ts";
import { clearBase } from "./garbage.ts";
import { enqueueIngest, newIngestCall } from "./ingest-call.ts";

/** @throws GatewayError `conflict`, `knowledge_full`, `invalid_request` */
export async function createBase(
  { repos }: CoreDeps,
  { tenant, config: { settings } }: CallContext,
  { name, config }: { readonly name: string; readonly config: KnowledgeConfigChange },
): Promise<KnowledgeBase> {
  const whole = checked(changeConfig(usualConfig, config));
  return repos.knowledge.createBase(
    tenant,
    { id: newId("knowledgeBase"), name, config: whole },
    settings.knowledge_bases,
  );
}

/**
 * @param base its id or its name
 * @throws GatewayError `not_found`
 */
export async function requireBase(
  { repos }: Pick<CoreDeps, "repos">,
  tenant: string,
  base: string,
): Promise<KnowledgeBase> {
  const found = await repos.knowledge.getBase(tenant, base);
  if (found !== undefined) return found;
  throw new GatewayError(
    "not_found",
    `There is no knowledge base '${base}'; POST /v1/knowledge/list tells which there are, POST /v1/knowledge/create makes one.`,
    { param: "knowledge_base" },
  );
}

/** Pieces must grow by more than they repeat, and one search has to count. */
function checked(config: KnowledgeConfig): KnowledgeConfig {
  const { size, overlap } = config.chunk;
  if (overlap > size / 2) {
    throw new GatewayError(
      "invalid_request",
      `'chunk.overlap' (${overlap}) may be half of 'chunk.size' (${size}) at most.`,
      { param: "config.chunk.overlap" },
    );
  }
  const { vector, full_text: fullText } = config.weights;
  if (vector + fullText === 0) {
    throw new GatewayError("invalid_request", "'weights.vector' and 'weights.full_text' must not both be 0.", {
      param: "config.weights",
    });
  }
  return config;
}

/**
 * What does not touch the index holds from the next query on; for the rest an index of its own is built, while the
 * present one serves.
 * @throws GatewayError `not_found`, `version_conflict`, `invalid_request`
 */
export async function updateConfig(
  deps: CoreDeps,
  context: CallContext,
  asked: {
    readonly base: string;
    readonly change: KnowledgeConfigChange;
    readonly expectedVersion: number | undefined;
  },
): Promise<KnowledgeBase> {
  const { tenant } = context;
  const base = await requireBase(deps, tenant, asked.base);
  const expectedConfigVersion = asked.expectedVersion ?? base.configVersion;
  const wanted = checked(changeConfig(base.next?.config ?? base.config, asked.change));
  const isIndexed = !needsReindex(base.config, wanted);
  const isBeingBuilt = base.next !== null && !needsReindex(base.next.config, wanted);
  const rebuild =
    isIndexed || isBeingBuilt
      ? null
      : {
          call: await newIngestCall(deps, context, { knowledgeBase: base.id, document: "" }),
          callerId: context.caller.id,
        };
  const changed = await deps.repos.knowledge.updateBase(tenant, base.id, {
    expectedConfigVersion,
    config: isIndexed ? wanted : withIndexOf(base.config, wanted),
    nextConfig: isIndexed ? null : wanted,
    rebuild,
  });
  if (changed === undefined) {
    throw new GatewayError(
      "version_conflict",
      `The configuration of '${base.name}' is not at version ${expectedConfigVersion} any more; read it with POST /v1/knowledge/list and try again.`,
      { param: "config_version" },
    );
  }
  if (rebuild !== null) await enqueueIngest(deps, tenant, rebuild.call.id);
  await clearBase(deps, tenant, base.id);
  return changed;
}

/** The wanted configuration, except for what its index would have to be built for. */
function withIndexOf(config: KnowledgeConfig, wanted: KnowledgeConfig): KnowledgeConfig {
  const embedding = { ...config.embedding, batch: wanted.embedding.batch };
  return { ...wanted, embedding, chunk: config.chunk, language: config.language };
}

/**
 * With its documents, their pieces and files.
 * @throws GatewayError `not_found`
 */
export async function deleteBase(
  deps: CoreDeps,
  tenant: string,
  name: string,
): Promise<{ readonly id: string; readonly documents: number }> {
  const base = await requireBase(deps, tenant, name);
  const deleted = await deps.repos.knowledge.deleteBase(tenant, base.id);
  await clearBase(deps, tenant, base.id);
  return { id: base.id, documents: deleted?.documents ?? 0 };
}
