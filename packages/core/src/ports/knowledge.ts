/** Persistence of knowledge bases. Rules as in repos.ts. Contract: test/contract/knowledge-repo.ts. */
import type { KnowledgeAcl, KnowledgeConfig, KnowledgeReader } from "../knowledge/config.ts";
import type { NewCall } from "./calls.ts";
import type { Page, PageRequest } from "./page.ts";

export const documentStates = ["queued", "extracting", "chunking", "embedding", "ready", "failed"] as const;
export type DocumentState = (typeof documentStates)[number];

export interface KnowledgeBase {
  readonly id: string;
  readonly name: string;
  /** What serves. */
  readonly config: KnowledgeConfig;
  /** Raised by every change. */
  readonly configVersion: number;
  /** Of the chunks that are searched. */
  readonly indexVersion: number;
  /** What is being built and takes its place when every document is there. */
  readonly next: { readonly config: KnowledgeConfig; readonly indexVersion: number } | null;
  readonly createdAt: number;
  readonly updatedAt: number;
  /** Of all its documents. */
  readonly counts: {
    readonly documents: number;
    readonly ready: number;
    readonly failed: number;
    readonly chunks: number;
    readonly bytes: number;
    /** Documents that are there in the next index, and those that are still to come. */
    readonly built: number;
    readonly toBuild: number;
  };
}

export type MetadataValue = string | number | boolean | null;

export interface KnowledgeDocument {
  readonly knowledgeBase: string;
  readonly id: string;
  readonly name: string;
  /** Put last. */
  readonly version: number;
  /** What is searched; null: nothing yet. */
  readonly currentVersion: number | null;
  readonly builtIndexVersion: number | null;
  readonly builtVersion: number | null;
  readonly state: DocumentState;
  /** Chunks. */
  readonly progressDone: number;
  readonly progressTotal: number;
  readonly errorCode: string | null;
  readonly errorMessage: string | null;
  readonly callId: string;
  /** Of that call. */
  readonly attempt: number;
  readonly mediaType: string;
  readonly bytes: number;
  readonly hash: string;
  readonly blobKey: string;
  readonly currentBlobKey: string | null;
  readonly sourceUrl: string | null;
  /** Null where it came with its bytes, and of older programs, which fetched `sourceUrl`. May let whoever has it in. */
  readonly fetchUrl: string | null;
  readonly characters: number;
  readonly chunkCount: number;
  readonly metadata: Readonly<Record<string, MetadataValue>>;
  readonly acl: KnowledgeAcl | null;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly readyAt: number | null;
}

export interface PutDocument {
  readonly id: string;
  readonly name: string;
  readonly mediaType: string;
  readonly bytes: number;
  /** Of the bytes and what is said of them; empty: they are fetched when it is ingested. */
  readonly hash: string;
  readonly blobKey: string;
  readonly sourceUrl: string | null;
  readonly fetchUrl: string | null;
  readonly metadata: KnowledgeDocument["metadata"];
  readonly acl: KnowledgeAcl | null;
}

/** A call of which a document's row says that it is the one at work on it; what any other writes changes nothing. */
export interface IngestFence {
  readonly knowledgeBase: string;
  readonly document: string;
  readonly callId: string;
  readonly attempt: number;
}

/** Chunks of one version of a document in one index. */
export interface ChunkPlace {
  readonly documentVersion: number;
  readonly indexVersion: number;
}

export interface NewChunk {
  readonly ordinal: number;
  readonly spanStart: number;
  readonly spanEnd: number;
  readonly heading: string;
  readonly text: string;
  /** As `knowledge_fts` has it. */
  readonly ftsText: string;
  readonly embedding: Float32Array | null;
}

export interface Ingest {
  readonly base: KnowledgeBase;
  readonly document: KnowledgeDocument;
  /** Of all other documents of the tenant. */
  readonly otherChunks: number;
}

export interface IngestChange {
  readonly state: DocumentState;
  readonly progressDone?: number;
  readonly progressTotal?: number;
  readonly characters?: number;
  readonly mediaType?: string;
  readonly bytes?: number;
}

/** Something that nobody can see any more. */
export interface KnowledgeGarbage {
  readonly id: number;
  readonly tenant: string;
  readonly knowledgeBase: string;
  readonly document: string | null;
  readonly upToVersion: number | null;
  readonly indexVersion: number | null;
  readonly hasChunks: boolean;
  readonly blobKey: string | null;
}

export interface BaseChange {
  readonly expectedConfigVersion: number;
  readonly config: KnowledgeConfig;
  /**
   * Takes the place of `config` once every document is there in an index of its own, at once where there is none.
   * Null: what was being built is given up.
   */
  readonly nextConfig: KnowledgeConfig | null;
  /** That index is begun anew, which this call sees to. Null: what is being built fits. */
  readonly rebuild: { readonly call: NewCall; readonly callerId: string } | null;
}

export interface KnowledgeRepo {
  /**
   * @param most bases of this tenant
   * @throws GatewayError `conflict` (param `name`) for a name that is taken, `knowledge_full`
   */
  createBase(
    tenant: string,
    base: { readonly id: string; readonly name: string; readonly config: KnowledgeConfig },
    most: number,
  ): Promise<KnowledgeBase>;
  /** @param base its id or its name */
  getBase(tenant: string, base: string): Promise<KnowledgeBase | undefined>;
  listBases(tenant: string, page: PageRequest): Promise<Page<KnowledgeBase>>;
  /** @returns `undefined` where the base is gone or its config is not of the version expected */
  updateBase(tenant: string, id: string, change: BaseChange): Promise<KnowledgeBase | undefined>;
  /** With all that is in it. @returns how many documents it had */
  deleteBase(tenant: string, id: string): Promise<{ readonly documents: number } | undefined>;

  /** Of a blob that is about to be written: it is garbage unless a document takes it within that time. */
  announceBlob(tenant: string, base: string, blobKey: string, withinMs: number): Promise<void>;
  /**
   * Puts or replaces a document, and the call that ingests it. With the same content as before only what is said of
   * the document changes, and there is no call.
   * @throws GatewayError `knowledge_full`; `not_found` where the base is gone
   */
  putDocument(
    tenant: string,
    base: string,
    document: PutDocument,
    ingest: {
      readonly call: NewCall;
      readonly callerId: string;
      readonly most: { readonly documents: number; readonly bytes: number };
    },
  ): Promise<{ readonly document: KnowledgeDocument; readonly isQueued: boolean }>;
  getDocument(
    tenant: string,
    base: string,
    id: string,
    reader: KnowledgeReader,
  ): Promise<KnowledgeDocument | undefined>;
  listDocuments(
    tenant: string,
    base: string,
    page: PageRequest & { readonly reader: KnowledgeReader; readonly state?: DocumentState },
  ): Promise<Page<KnowledgeDocument>>;
  deleteDocument(tenant: string, base: string, id: string): Promise<boolean>;
  /**
   * Gives a document that is at rest to a new call; one whose pieces lack the vectors that its base wants is brought in
   * as a new version. `undefined`: there is none; one that is being ingested stays as it is.
   */
  retryDocument(
    tenant: string,
    base: string,
    id: string,
    ingest: { readonly call: NewCall; readonly callerId: string },
  ): Promise<KnowledgeDocument | undefined>;

  /** Takes the document for this attempt of its call, from whichever had it before. `undefined`: it is not this call's. */
  openIngest(tenant: string, fence: IngestFence): Promise<Ingest | undefined>;
  /** False: it is not this call's any more; so with all that have a fence. */
  changeIngest(tenant: string, fence: IngestFence, change: IngestChange): Promise<boolean>;
  /** How many are there; they were written in order. */
  countChunks(tenant: string, fence: IngestFence, place: ChunkPlace): Promise<number>;
  /** What is there already stays as it is. */
  writeChunks(tenant: string, fence: IngestFence, place: ChunkPlace, chunks: readonly NewChunk[]): Promise<boolean>;
  /**
   * From now on this version is searched. False: it is not this call's, or another index serves meanwhile.
   * @param chunks how many there must be
   */
  serveVersion(tenant: string, fence: IngestFence, place: ChunkPlace, chunks: number): Promise<boolean>;
  /** The same in the index that is being built, which takes its place where this was the last document. */
  buildVersion(tenant: string, fence: IngestFence, place: ChunkPlace, chunks: number): Promise<boolean>;
  /** Without error: ready. False where there is more to do, or it is not this call's. */
  finishIngest(
    tenant: string,
    fence: IngestFence,
    end: {
      readonly error: { readonly code: string; readonly message: string } | null;
      /** It is ready without what this says. */
      readonly lacking?: { readonly code: string; readonly message: string } | undefined;
      /** The index into which it cannot be brought. */
      readonly failedIndex?: number | undefined;
    },
  ): Promise<boolean>;
  /** Documents at rest that are to come into the index that is being built, by id. */
  listToBuild(tenant: string, base: string, limit: number): Promise<readonly string[]>;
  /** Gives each that is still at rest to its call, and the calls to workers. */
  queueToBuild(
    tenant: string,
    base: string,
    ingests: readonly { readonly document: string; readonly call: NewCall }[],
    callerId: string,
  ): Promise<void>;

  /** Due garbage, of one base or of all tenants; for so long others do not get it. */
  takeGarbage(options: {
    readonly of?: { readonly tenant: string; readonly knowledgeBase: string };
    readonly limit: number;
    readonly claimMs: number;
  }): Promise<readonly KnowledgeGarbage[]>;
  /** @returns how many there were, at most `limit` */
  deleteGarbageChunks(garbage: KnowledgeGarbage, limit: number): Promise<number>;
  /** Its chunks and its blob are gone. */
  deleteGarbage(garbage: KnowledgeGarbage): Promise<void>;
}
