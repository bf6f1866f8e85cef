/** How a knowledge base cuts, embeds and searches its documents, and who may read them (KB-1, KB-2). */
import * as z from "zod";
import { hasScope, roleSchema, type Caller } from "../callers/caller.ts";

export const knowledgeAclSchema = z
  .strictObject({
    roles: z.array(roleSchema).max(3).default([]),
    users: z.array(z.string().min(1).max(256)).max(1_000).default([]),
    business_units: z.array(z.string().min(1).max(256)).max(1_000).default([]),
  })
  .meta({
    description: "Who may read: whoever is named in one of the lists. With all of them empty, those who manage alone.",
  });
export type KnowledgeAcl = z.output<typeof knowledgeAclSchema>;

/** Of a vector: no model in use makes more. */
export const mostDimensions = 4_096;

const embeddingFields = z.strictObject({
  model: z.string().min(1).max(200).nullable().meta({
    description: "A model of the tenant's providers that makes vectors; null: full text alone is searched.",
  }),
  dimensions: z
    .int()
    .min(1)
    .max(mostDimensions)
    .nullable()
    .meta({ description: "Of its vectors; null: as many as it makes." }),
  batch: z.int().min(1).max(256).meta({ description: "Texts in one request." }),
});

const chunkFields = z.strictObject({
  size: z.int().min(32).max(4_000).meta({ description: "Tokens that a piece is to have at most, by estimate." }),
  overlap: z.int().min(0).max(1_000).meta({ description: "Tokens at its start that are the end of the one before." }),
  by: z.enum(["sentence", "paragraph"]).meta({ description: "Where pieces may end, where there is a choice." }),
});

const weight = z.number().min(0).max(10);
const weightFields = z
  .strictObject({ vector: weight, full_text: weight })
  .meta({ description: "How much either search counts where both are made; not both 0." });

const configFields = z.strictObject({
  embedding: embeddingFields,
  chunk: chunkFields,
  language: z
    .string()
    .regex(/^[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*$/, "must be a language like 'zh' or 'en-GB'")
    .nullable()
    .meta({ description: "Of most documents; helps to find where sentences end. Null: not said." }),
  top_k: z.int().min(1).max(100).meta({ description: "Hits, where a query does not say how many." }),
  min_score: z.number().min(0).max(1).meta({ description: "Hits below are left out." }),
  weights: weightFields,
  acl: knowledgeAclSchema.nullable().meta({
    description: "For documents that say nothing themselves; null: whoever may use tools of this tenant.",
  }),
});

export type KnowledgeConfig = z.output<typeof configFields>;

export const knowledgeConfigSchema = configFields.meta({ id: "KnowledgeConfig" });

/** What of it may be given: what is left out is as it was, or as usual. */
export const knowledgeConfigChangeSchema = z.strictObject({
  ...configFields.partial().shape,
  embedding: embeddingFields.partial().optional(),
  chunk: chunkFields.partial().optional(),
  weights: weightFields.partial().optional(),
});
export type KnowledgeConfigChange = z.output<typeof knowledgeConfigChangeSchema>;

export const usualConfig: KnowledgeConfig = {
  embedding: { model: null, dimensions: null, batch: 64 },
  chunk: { size: 400, overlap: 60, by: "sentence" },
  language: null,
  top_k: 8,
  min_score: 0,
  weights: { vector: 1, full_text: 1 },
  acl: null,
};

export function changeConfig(config: KnowledgeConfig, change: KnowledgeConfigChange): KnowledgeConfig {
  const { embedding, chunk, weights, ...rest } = change;
  return configFields.parse({
    ...config,
    ...defined(rest),
    embedding: { ...config.embedding, ...defined(embedding ?? {}) },
    chunk: { ...config.chunk, ...defined(chunk ?? {}) },
    weights: { ...config.weights, ...defined(weights ?? {}) },
  });
}

function defined(object: object): object {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));
}

/** Do documents have to be cut and embedded anew? How many go in one request changes nothing. */
export function needsReindex(before: KnowledgeConfig, after: KnowledgeConfig): boolean {
  const relevant = ({ embedding: { model, dimensions }, chunk, language }: KnowledgeConfig): string =>
    JSON.stringify([model, dimensions, chunk.size, chunk.overlap, chunk.by, language]);
  return relevant(before) !== relevant(after);
}

/** Who asks, as far as documents want to know it. */
export interface KnowledgeReader {
  /** May read every document of the tenant. */
  readonly all: boolean;
  readonly role: string;
  readonly user: string | null;
  readonly business_unit: string | null;
}

/** Whoever manages the tenant's documents sees all of them; to everybody else those exist that name them. */
export function readerOf(caller: Caller): KnowledgeReader {
  return {
    all: hasScope(caller, "manage"),
    role: caller.role,
    user: caller.userId ?? null,
    business_unit: caller.businessUnit ?? null,
  };
}
