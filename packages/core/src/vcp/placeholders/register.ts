/** Creates, changes and deletes variables (VCP-19). Every instance has a change with its next request. */
import { createHash } from "node:crypto";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { newId } from "../../ids.ts";
import {
  largestContent,
  variableKinds,
  type NewVariable,
  type VariableChange,
  type VariableEntry,
  type VariableKind,
  type VariableOptions,
} from "./variable.ts";

export interface VariableRequest {
  readonly kind: VariableKind;
  readonly name: string;
  readonly content: string;
  readonly options: VariableOptions;
  readonly position?: number;
}

type Deps = Pick<CoreDeps, "repos">;

/** @throws GatewayError `invalid_request` naming the field, `payload_too_large`, `conflict` for a name that is taken */
export async function createVariable(
  { repos }: Deps,
  tenant: string,
  request: VariableRequest,
): Promise<VariableEntry> {
  return repos.variables.create(tenant, newVariable(request));
}

/** @throws GatewayError as `createVariable` */
export function newVariable({ kind, name, content, options, position }: VariableRequest): NewVariable {
  checkName(kind, name);
  checkOptions(kind, options);
  checkContent(name, content);
  return {
    id: newId("variable"),
    kind,
    name,
    options,
    content,
    hash: hashOf(content),
    ...(position === undefined ? {} : { position }),
  };
}

export interface VariablePatch {
  readonly content?: string;
  /** The whole. */
  readonly options?: VariableOptions;
  readonly position?: number;
}

/** @throws GatewayError as `createVariable`; `version_conflict` where another version was expected */
export async function updateVariable(
  { repos }: Deps,
  tenant: string,
  {
    id,
    patch,
    expectedVersion,
  }: { readonly id: string; readonly patch: VariablePatch; readonly expectedVersion?: number },
): Promise<VariableEntry | undefined> {
  const known = await repos.variables.get(tenant, id);
  if (known === undefined) return undefined;
  const { content, options, position } = patch;
  if (options !== undefined) checkOptions(known.kind, options);
  if (content !== undefined) checkContent(known.name, content);
  const change: VariableChange = {
    ...(options === undefined ? {} : { options }),
    ...(position === undefined ? {} : { position }),
    ...(content === undefined ? {} : { content: { text: content, hash: hashOf(content) } }),
  };
  return repos.variables.update(tenant, id, change, expectedVersion);
}

/** With its content, however large. */
export async function readVariable(
  { repos }: Deps,
  tenant: string,
  id: string,
): Promise<{ readonly entry: VariableEntry; readonly content: string } | undefined> {
  const entry = await repos.variables.get(tenant, id);
  if (entry === undefined) return undefined;
  if (entry.content !== null) return { entry, content: entry.content };
  const [text] = await repos.variables.contents(tenant, [id]);
  return text === undefined ? undefined : { entry, content: text.content };
}

function checkName(kind: VariableKind, name: string): void {
  const { pattern, rule } = variableKinds[kind];
  if (pattern.test(name)) return;
  throw new GatewayError("invalid_request", `'name' of a variable of kind '${kind}' ${rule}.`, { param: "name" });
}

function checkOptions(kind: VariableKind, options: VariableOptions): void {
  const isDetector = kind === "detector" || kind === "super_detector";
  const fitting = kind === "sar" ? ["models", "match_mode"] : isDetector ? ["output"] : [];
  const other = Object.keys(options).find((option) => option !== "description" && !fitting.includes(option));
  if (other !== undefined) {
    throw new GatewayError("invalid_request", `'${other}' is nothing that a variable of kind '${kind}' has.`, {
      param: other,
    });
  }
  if (kind === "sar" && (options.models ?? []).length === 0) {
    throw new GatewayError("invalid_request", "'models' must name the models that the text is for.", {
      param: "models",
    });
  }
  if (isDetector && options.output === undefined) {
    throw new GatewayError("invalid_request", "'output' must say what is put in place of 'content'; it may be empty.", {
      param: "output",
    });
  }
}

function checkContent(name: string, content: string): void {
  if (Buffer.byteLength(content) <= largestContent) return;
  throw new GatewayError("payload_too_large", `'${name}' has more than ${largestContent} bytes; divide it.`, {
    param: "content",
    extra: { limit_bytes: largestContent },
  });
}

function hashOf(content: string): string {
  return createHash("sha256").update(content).digest("hex");
}
