/**
 * Documents as they are put, looked at and taken away (KB-1). Putting one writes its bytes and the call that brings
 * it into the index; everything that takes time is that call's.
 */
import { createHash, randomUUID, type Hash } from "node:crypto";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import { tenantKey } from "../ports/blob-store.ts";
import type { KnowledgeBase, KnowledgeDocument, MetadataValue, PutDocument } from "../ports/knowledge.ts";
import { createWorkspace } from "../workspace/workspace.ts";
import { requireBase } from "./bases.ts";
import type { KnowledgeAcl, KnowledgeReader } from "./config.ts";
import { clearBase } from "./garbage.ts";
import { enqueueIngest, newIngestCall } from "./ingest-call.ts";

export type DocumentSource =
  | { readonly kind: "bytes"; readonly bytes: Uint8Array }
  | { readonly kind: "file"; readonly session: string; readonly path: string }
  | { readonly kind: "url"; readonly url: string };

export interface UpsertRequest {
  readonly base: string;
  /** Absent: known by its name, where it has one. */
  readonly documentId: string | undefined;
  readonly name: string | undefined;
  readonly source: DocumentSource;
  /** Absent: what the source says, or what it turns out to be. */
  readonly mediaType: string | undefined;
  /** Where people find it; cited in hits. */
  readonly sourceUrl: string | undefined;
  readonly metadata: Readonly<Record<string, MetadataValue>>;
  readonly acl: KnowledgeAcl | null;
}

export interface Upserted {
  readonly base: KnowledgeBase;
  readonly document: KnowledgeDocument;
  /** False: its content is what it was. */
  readonly isQueued: boolean;
}

/** Whoever has written bytes has so long to say whose they are. */
const announcedMs = 3_600_000;

/** @throws GatewayError `not_found`, `file_not_found`, `document_too_large`, `knowledge_full`, `invalid_request` */
export async function upsertDocument(deps: CoreDeps, context: CallContext, request: UpsertRequest): Promise<Upserted> {
  const { tenant, config } = context;
  const { settings } = config;
  const base = await requireBase(deps, tenant, request.base);
  const identity = identityOf(request);
  const content = await storeContent(deps, context, { base, request, name: identity.name });
  const fetchUrl = request.source.kind === "url" ? request.source.url : null;
  const document: PutDocument = {
    ...identity,
    ...content,
    mediaType: request.mediaType ?? content.mediaType,
    sourceUrl: request.sourceUrl ?? fetchUrl,
    fetchUrl,
    metadata: request.metadata,
    acl: request.acl,
  };
  const call = await newIngestCall(deps, context, { knowledgeBase: base.id, document: document.id });
  deps.reach("knowledge.stored");
  const put = await deps.repos.knowledge.putDocument(tenant, base.id, document, {
    call,
    callerId: context.caller.id,
    most: { documents: settings.knowledge_documents, bytes: settings.knowledge_bytes },
  });
  deps.reach("knowledge.recorded");
  if (put.isQueued) await enqueueIngest(deps, tenant, call.id);
  await clearBase(deps, tenant, base.id);
  return { base, ...put };
}

/** The same name is the same document, so that putting it twice does not make two. */
function identityOf({ documentId, name, source }: UpsertRequest): Pick<PutDocument, "id" | "name"> {
  const known = name ?? (source.kind === "file" ? source.path : source.kind === "url" ? source.url : undefined);
  if (documentId !== undefined) return { id: documentId, name: known ?? documentId };
  if (known === undefined) {
    const id = newId("document");
    return { id, name: id };
  }
  const digest = createHash("sha256").update(known.normalize("NFC")).digest("hex").slice(0, 26);
  return { id: `doc_${digest}`, name: known };
}

type StoredContent = Pick<PutDocument, "mediaType" | "bytes" | "hash" | "blobKey">;

async function storeContent(
  deps: CoreDeps,
  { tenant, config: { settings } }: CallContext,
  asked: { readonly base: KnowledgeBase; readonly request: UpsertRequest; readonly name: string },
): Promise<StoredContent> {
  const { base, name, request } = asked;
  const { source } = request;
  const { blobs, repos } = deps;
  const blobKey = tenantKey(tenant, "knowledge", base.id, randomUUID());
  const limit = settings.knowledge_document_bytes;
  if (source.kind === "url") return { mediaType: "", bytes: 0, hash: "", blobKey };
  if (source.kind === "bytes") {
    if (source.bytes.byteLength > limit) throw tooLarge(source.bytes.byteLength, limit);
    await repos.knowledge.announceBlob(tenant, base.id, blobKey, announcedMs);
    await blobs.put(blobKey, source.bytes);
    const hash = hashOf(request, name).update(source.bytes).digest("hex");
    return { mediaType: "", bytes: source.bytes.byteLength, hash, blobKey };
  }
  const { file, body } = await createWorkspace(deps).read({ tenant, session: source.session, path: source.path });
  if (file.bytes > limit) throw tooLarge(file.bytes, limit);
  await repos.knowledge.announceBlob(tenant, base.id, blobKey, announcedMs);
  const hash = hashOf(request, name);
  await blobs.put(blobKey, hashed(body, hash));
  return { mediaType: file.mediaType, bytes: file.bytes, hash: hash.digest("hex"), blobKey };
}

/** What a document is taken for is part of what it is: by the type that is given, else by the end of its name. */
function hashOf({ mediaType = "" }: UpsertRequest, name: string): Hash {
  const end = /\.[^./]{1,16}$/.exec(name)?.[0].toLowerCase() ?? "";
  return createHash("sha256").update(`${mediaType}\n${end}\n`);
}

async function* hashed(body: AsyncIterable<Uint8Array>, hash: Hash): AsyncGenerator<Uint8Array> {
  for await (const part of body) {
    hash.update(part);
    yield part;
  }
}

export function tooLarge(bytes: number, limit: number): GatewayError {
  return new GatewayError(
    "document_too_large",
    `The document has ${bytes} bytes; this tenant takes ${limit} of one ('knowledge_document_bytes').`,
    { extra: { limit_bytes: limit } },
  );
}

/** @throws GatewayError `not_found` */
export async function requireDocument(
  { repos }: CoreDeps,
  tenant: string,
  asked: { readonly base: string; readonly document: string; readonly reader: KnowledgeReader },
): Promise<{ readonly base: KnowledgeBase; readonly document: KnowledgeDocument }> {
  const base = await requireBase({ repos }, tenant, asked.base);
  const document = await repos.knowledge.getDocument(tenant, base.id, asked.document, asked.reader);
  if (document === undefined) throw noDocument(asked.document);
  return { base, document };
}

function noDocument(id: string): GatewayError {
  return new GatewayError("not_found", `There is no document '${id}' in this knowledge base.`, {
    param: "document_id",
  });
}

/** @throws GatewayError `not_found` */
export async function deleteDocument(
  deps: CoreDeps,
  tenant: string,
  asked: { readonly base: string; readonly document: string },
): Promise<void> {
  const base = await requireBase(deps, tenant, asked.base);
  if (!(await deps.repos.knowledge.deleteDocument(tenant, base.id, asked.document))) throw noDocument(asked.document);
  await clearBase(deps, tenant, base.id);
}

/**
 * Has a document that failed ingested again; one that is at work already goes on.
 * @throws GatewayError `not_found`
 */
export async function retryDocument(
  deps: CoreDeps,
  context: CallContext,
  asked: { readonly base: string; readonly document: string },
): Promise<KnowledgeDocument> {
  const { tenant } = context;
  const base = await requireBase(deps, tenant, asked.base);
  const call = await newIngestCall(deps, context, { knowledgeBase: base.id, document: asked.document });
  const ingest = { call, callerId: context.caller.id };
  const document = await deps.repos.knowledge.retryDocument(tenant, base.id, asked.document, ingest);
  if (document === undefined) throw noDocument(asked.document);
  if (document.callId === call.id) await enqueueIngest(deps, tenant, call.id);
  return document;
}
