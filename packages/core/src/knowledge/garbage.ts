/** Takes away what nobody can see any more: chunks a few at a time, then the blob, then the account of it. */
import type { CoreDeps } from "../core-deps.ts";
import { toGatewayError } from "../errors/gateway-error.ts";
import type { KnowledgeGarbage } from "../ports/knowledge.ts";

/** One statement holds the database for so many. */
const chunksAtOnce = 500;
/** What is left of a large base is the next tick's. */
const mostRounds = 40;
const claimMs = 300_000;

/** A blob and the text that was read from it. */
export function textKeyOf(blobKey: string): string {
  return `${blobKey}-text`;
}

/** What a change has just left behind; never throws, since the tick does it otherwise. */
export async function clearBase(
  deps: Pick<CoreDeps, "repos" | "blobs" | "log">,
  tenant: string,
  knowledgeBase: string,
): Promise<void> {
  try {
    await clear(deps, await deps.repos.knowledge.takeGarbage({ of: { tenant, knowledgeBase }, limit: 100, claimMs }));
  } catch (thrown) {
    deps.log.log("warn", "what a knowledge base left behind is left to the tick", {
      tenant,
      knowledge_base: knowledgeBase,
      code: toGatewayError(thrown).code,
    });
  }
}

/** Of the tick. */
export async function clearKnowledge(deps: Pick<CoreDeps, "repos" | "blobs">, limit: number): Promise<void> {
  await clear(deps, await deps.repos.knowledge.takeGarbage({ limit, claimMs }));
}

async function clear(
  { repos, blobs }: Pick<CoreDeps, "repos" | "blobs">,
  all: readonly KnowledgeGarbage[],
): Promise<void> {
  let rounds = 0;
  for (const garbage of all) {
    let left = garbage.hasChunks;
    while (left && rounds < mostRounds) {
      rounds += 1;
      left = (await repos.knowledge.deleteGarbageChunks(garbage, chunksAtOnce)) === chunksAtOnce;
    }
    if (left) continue;
    if (garbage.blobKey !== null) {
      await blobs.delete(garbage.blobKey);
      await blobs.delete(textKeyOf(garbage.blobKey));
    }
    await repos.knowledge.deleteGarbage(garbage);
  }
}
