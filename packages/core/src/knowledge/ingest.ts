/**
 * Brings a document to what was put last, as one call (KB-1): read, cut, embedded, written, and then shown at once.
 * It looks at what is missing and does that, again and again, so that whoever takes the call over, or finds it done,
 * or comes upon a newer version, does what is right then. Nothing of the text goes into the log or the outcome.
 */
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { Pace } from "../pace.ts";
import { readAll } from "../ports/blob-store.ts";
import type { ChunkPlace, Ingest, IngestFence, KnowledgeDocument, NewChunk } from "../ports/knowledge.ts";
import { withDelivery } from "../errors/delivery.ts";
import { Parked, type InvocationContext, type ToolCall, type ToolReply } from "../tools/tool-call.ts";
import { cutText, type Piece } from "./chunk.ts";
import type { KnowledgeConfig } from "./config.ts";
import { tooLarge } from "./documents.ts";
import { embedTexts } from "./embed.ts";
import { extractText } from "./extract.ts";
import { toFtsText } from "./fts-text.ts";
import { clearBase, textKeyOf } from "./garbage.ts";
import { enqueueIngest, newIngestCall } from "./ingest-call.ts";
import { hasHeadings, unreadable } from "./kind.ts";

/** Each look finds less to do; a document that is put all the time is its next call's. */
const mostLooks = 20;
const chunksAtOnce = 64;
const fetchMs = 60_000;
const mostRedirects = 3;
/** Attempts at what may work in a moment. */
const mostTries = 6;
const firstWaitMs = 1_000;
const longestWaitMs = 300_000;
/** Then the call goes on in another invocation; what is written stays. */
const longestWorkMs = 600_000;

interface Work {
  readonly deps: CoreDeps;
  readonly context: InvocationContext;
  readonly fence: IngestFence;
  /** `performance.now()` */
  readonly startedAt: number;
  /** Why pieces are written without vectors, once they are. */
  lacking?: GatewayError;
}

/** One version of a document in one index. */
interface Step extends ChunkPlace {
  readonly kind: "serve" | "build";
  readonly config: KnowledgeConfig;
  readonly blobKey: string;
}

export async function ingestDocument(deps: CoreDeps, call: ToolCall, context: InvocationContext): Promise<ToolReply> {
  const fence = { knowledgeBase: call.uri.service, document: call.uri.tool, callId: call.id, attempt: call.attempt };
  const work: Work = { deps, context, fence, startedAt: performance.now() };
  const failures = new Map<Step["kind"], { readonly error: GatewayError; readonly index: number }>();
  for (let look = 0; look < mostLooks; look += 1) {
    const ingest = await deps.repos.knowledge.openIngest(context.tenant, fence);
    if (ingest === undefined) return reply({ superseded: true });
    const failed = (kind: Step["kind"], index: number): boolean => failures.get(kind)?.index === index;
    const step = nextStep(ingest, failed);
    if (step === undefined) {
      // An index that was given up meanwhile, for another one or none, is missed by nobody.
      const { next } = ingest.base;
      const build = next !== null && failed("build", next.indexVersion) ? failures.get("build") : undefined;
      const error = failures.get("serve")?.error ?? build?.error;
      const end = { error: error ?? null, lacking: work.lacking, failedIndex: build?.index };
      if (!(await deps.repos.knowledge.finishIngest(context.tenant, fence, end))) continue;
      await clearBase(deps, context.tenant, fence.knowledgeBase);
      if (error !== undefined) throw withDelivery(error, "answered");
      return reply({ chunks: ingest.document.chunkCount, version: ingest.document.version });
    }
    try {
      await carryOut(work, ingest, step);
    } catch (thrown) {
      if (thrown instanceof Parked) throw thrown;
      const error = toGatewayError(thrown);
      // It is not the document's fault: whoever has the call next does it.
      if (context.signal.aborted || error.code === "database_unavailable") throw error;
      waitIfPassing(error, work);
      if (error.code === "internal_error") {
        deps.log.log("error", "a document could not be ingested", {
          tenant: context.tenant,
          knowledge_base: fence.knowledgeBase,
          document: fence.document,
          call_id: fence.callId,
          error: error.cause instanceof Error ? error.cause.name : "unknown",
        });
      }
      failures.set(step.kind, { error, index: step.indexVersion });
    }
  }
  throw withDelivery(
    new GatewayError("conflict", "The document was put again and again while it was ingested; retry it."),
    "answered",
  );
}

function reply(result: Readonly<Record<string, number | boolean>>): ToolReply {
  return { mediaType: "application/json", body: JSON.stringify(result) };
}

function nextStep(
  { document, base }: Ingest,
  failed: (kind: Step["kind"], index: number) => boolean,
): Step | undefined {
  const { version, currentVersion, blobKey, currentBlobKey } = document;
  if (currentVersion !== version && !failed("serve", base.indexVersion)) {
    return { kind: "serve", config: base.config, blobKey, documentVersion: version, indexVersion: base.indexVersion };
  }
  const { next } = base;
  if (next === null || currentVersion === null || currentBlobKey === null) return undefined;
  const isBuilt = document.builtIndexVersion === next.indexVersion && document.builtVersion === currentVersion;
  if (isBuilt || failed("build", next.indexVersion)) return undefined;
  return {
    kind: "build",
    config: next.config,
    blobKey: currentBlobKey,
    documentVersion: currentVersion,
    indexVersion: next.indexVersion,
  };
}

/** May it work in a moment? Then the call waits for that, and nobody has to be there meanwhile. */
function waitIfPassing(error: GatewayError, { fence }: Work): void {
  const isPassing = error.spec.retryable || error.code === "tool_unreachable" || error.code === "tool_timeout";
  if (!isPassing || fence.attempt >= mostTries) return;
  const waitMs = Math.max(error.details.retryAfterMs ?? 0, firstWaitMs * 2 ** (fence.attempt - 1));
  throw new Parked(Math.min(longestWaitMs, waitMs));
}

/** Ends early where the document is not ours any more, or the index nobody's: the next look says so. */
async function carryOut(work: Work, ingest: Ingest, step: Step): Promise<void> {
  const { deps, context, fence } = work;
  const { knowledge } = deps.repos;
  const { tenant } = context;
  const read = await textOf(work, ingest.document, step);
  if (read === undefined) return;
  const pieces = await piecesOf(read, step.config);
  refuseTooMany(context, ingest, pieces.length);
  const done = await knowledge.countChunks(tenant, fence, step);
  const progress = { progressDone: done, progressTotal: pieces.length };
  if (!(await knowledge.changeIngest(tenant, fence, { state: "embedding", ...progress }))) return;
  const atOnce = Math.min(chunksAtOnce, step.config.embedding.batch);
  for (let at = done; at < pieces.length; at += atOnce) {
    context.signal.throwIfAborted();
    if (performance.now() - work.startedAt > longestWorkMs) throw new Parked(0);
    const part = pieces.slice(at, at + atOnce);
    const chunks = await chunksOf(work, { text: read.text, part, firstOrdinal: at, step });
    deps.reach("knowledge.embedded");
    if (!(await knowledge.writeChunks(tenant, fence, step, chunks))) return;
    deps.reach("knowledge.chunks-written");
  }
  if (step.kind === "serve") await knowledge.serveVersion(tenant, fence, step, pieces.length);
  else await knowledge.buildVersion(tenant, fence, step, pieces.length);
  deps.reach("knowledge.served");
}

interface ReadText {
  readonly text: string;
  readonly mediaType: string;
}

/** The text that was read before, by whichever attempt; else it is read now. Undefined: it is not ours any more. */
async function textOf(work: Work, document: KnowledgeDocument, step: Step): Promise<ReadText | undefined> {
  const { deps, context, fence } = work;
  const { knowledge } = deps.repos;
  const textKey = textKeyOf(step.blobKey);
  const stored = await deps.blobs.get(textKey);
  if (stored !== undefined) {
    const text = Buffer.from(await readAll(stored.body)).toString("utf8");
    return { text, mediaType: stored.info.mediaType.split(";", 1)[0] ?? "" };
  }
  if (step.kind === "build") throw unreadable("its text is gone; put the document again");
  if (!(await knowledge.changeIngest(context.tenant, fence, { state: "extracting" }))) return undefined;
  const source = await sourceOf(work, document);
  const { settings } = context.config;
  const { text, mediaType } = await extractText(source.bytes, {
    name: document.name,
    mediaType: source.mediaType,
    maxCharacters: settings.knowledge_document_characters,
    signal: context.signal,
    reader: deps.documents,
  });
  await deps.blobs.put(textKey, Buffer.from(text, "utf8"), { mediaType: `${mediaType}; charset=utf-8` });
  deps.reach("knowledge.extracted");
  const change = {
    state: "chunking",
    characters: text.length,
    mediaType,
    bytes: source.bytes.byteLength,
  } as const;
  return (await knowledge.changeIngest(context.tenant, fence, change)) ? { text, mediaType } : undefined;
}

interface Source {
  readonly bytes: Uint8Array;
  readonly mediaType: string;
}

async function sourceOf(work: Work, document: KnowledgeDocument): Promise<Source> {
  const { blobs } = work.deps;
  const stored = await blobs.get(document.blobKey);
  if (stored !== undefined) {
    const said = stored.info.mediaType;
    const mediaType = document.mediaType === "" ? said : document.mediaType;
    return { bytes: await readAll(stored.body), mediaType };
  }
  const address = document.fetchUrl ?? document.sourceUrl;
  if (document.hash !== "" || address === null) throw unreadable("its bytes are gone; put the document again");
  const fetched = await fetchSource(work, address);
  await blobs.put(document.blobKey, fetched.bytes, { mediaType: fetched.mediaType });
  return { ...fetched, mediaType: document.mediaType === "" ? fetched.mediaType : document.mediaType };
}

/** Nothing of ours goes with the request: it is whatever anybody would be given there. */
async function fetchSource({ deps, context }: Work, url: string): Promise<Source> {
  const limit = context.config.settings.knowledge_document_bytes;
  const response = await deps.egress.request({
    method: "GET",
    url,
    headers: [
      ["accept", "*/*"],
      ["user-agent", "toolyard"],
    ],
    signal: context.signal,
    timeoutMs: fetchMs,
    maxRedirects: mostRedirects,
    span: context.span,
  });
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of response.body) {
    bytes += part.byteLength;
    if (bytes > limit) throw tooLarge(bytes, limit);
    parts.push(part);
  }
  if (response.status >= 300) {
    throw new GatewayError("tool_failed", `The address of the document answered HTTP ${response.status}.`, {
      extra: { status: response.status },
    });
  }
  const type = response.headers["content-type"];
  return { bytes: Buffer.concat(parts), mediaType: typeof type === "string" ? type.slice(0, 200) : "" };
}

async function piecesOf({ text, mediaType }: ReadText, config: KnowledgeConfig): Promise<readonly Piece[]> {
  const pieces: Piece[] = [];
  const { chunk, language } = config;
  const pace = new Pace();
  for (const piece of cutText(text, { chunk, language, hasHeadings: hasHeadings(mediaType) })) {
    pieces.push(piece);
    await pace.turn();
  }
  return pieces;
}

/** @throws GatewayError `knowledge_full` */
function refuseTooMany({ config: { settings } }: InvocationContext, { otherChunks }: Ingest, chunks: number): void {
  const most = settings.knowledge_chunks;
  if (otherChunks + chunks <= most) return;
  throw new GatewayError(
    "knowledge_full",
    `With the ${chunks} pieces of this document the tenant would have ${otherChunks + chunks}, more than the ${most} that it may ('knowledge_chunks'); delete documents, make pieces larger ('chunk.size'), or raise that setting.`,
  );
}

interface Part {
  readonly text: string;
  readonly part: readonly Piece[];
  readonly firstOrdinal: number;
  readonly step: Step;
}

async function chunksOf(work: Work, { text, part, firstOrdinal, step }: Part): Promise<readonly NewChunk[]> {
  const pieces = part.map((piece) => ({ ...piece, text: text.slice(piece.start, piece.end) }));
  // What stands above a piece says what it is about.
  const whole = pieces.map((piece) => (piece.heading === "" ? piece.text : `${piece.heading}\n${piece.text}`));
  const vectors = await vectorsOf(work, step, whole);
  return pieces.map(({ start, end, heading, text: own }, at) => ({
    ordinal: firstOrdinal + at,
    spanStart: start,
    spanEnd: end,
    heading,
    text: own,
    ftsText: toFtsText(whole[at] ?? own),
    embedding: vectors[at] ?? null,
  }));
}

/** What a look at the configuration cures, whatever the document is. */
const setUpLacks: ReadonlySet<string> = new Set(["credential_missing", "model_not_found"]);

/**
 * Without the credential of the model's provider, or a provider that has the model, a document is found by words, which is better than not at all: its row
 * says what it lacks, and a retry brings it in with vectors. An index that is being built is not worth that: the one
 * that serves may have them.
 */
async function vectorsOf(
  work: Work,
  { config, kind }: Step,
  texts: readonly string[],
): Promise<readonly Float32Array[]> {
  const { deps, context, fence } = work;
  if (config.embedding.model === null || (kind === "serve" && work.lacking !== undefined)) return [];
  try {
    return await embedTexts(deps, context, { config, within: fence.callId, signal: context.signal }, texts);
  } catch (thrown) {
    if (kind === "build" || !(thrown instanceof GatewayError) || !setUpLacks.has(thrown.code)) throw thrown;
    work.lacking = thrown;
    return [];
  }
}

/** Documents of one batch of calls. */
const queuedAtOnce = 50;

/** Gives every document that the next index lacks to a call of its own; those at work find it by themselves. */
export async function reindexBase(deps: CoreDeps, call: ToolCall, context: InvocationContext): Promise<ToolReply> {
  const { knowledge } = deps.repos;
  const { tenant, caller } = context;
  const knowledgeBase = call.uri.service;
  let queued = 0;
  for (;;) {
    context.signal.throwIfAborted();
    const documents = await knowledge.listToBuild(tenant, knowledgeBase, queuedAtOnce);
    if (documents.length === 0) return reply({ queued });
    const ingests = await Promise.all(
      documents.map(async (document) => ({
        document,
        call: await newIngestCall(deps, context, { knowledgeBase, document, parent: call.id }),
      })),
    );
    await knowledge.queueToBuild(tenant, knowledgeBase, ingests, caller.id);
    deps.reach("knowledge.reindex-queued");
    for (const ingest of ingests) await enqueueIngest(deps, tenant, ingest.call.id);
    queued += documents.length;
  }
}
