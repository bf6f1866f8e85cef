/**
 * Keys that a document asks for as plain parameters instead of naming a scheme. No model should be told of them, let
 * alone asked for them, so only names that mean nothing else count, and others whose description says so.
 */
import { isHeaderName, isTransportHeader } from "../../blind/header-rules.ts";
import { isJsonObject, type JsonValue } from "../../json.ts";
import { isSecretName, wordsOf } from "../../secrets/secret-shape.ts";
import type { ApiParameter } from "./operation.ts";
import { typeNames } from "./schema-types.ts";

/** In a query, where harmless things have such names more often than among headers. */
const inQuery = /^(?:x-)?(?:api|access|oauth)-?(?:key|token)$|^hapikey$/;
/** What a key may be called, too, where it is asked for and nothing else lets the caller in. */
const likely =
  /^(?:x-)?(?:auth|subscription|secret|private|app|application|developer|dev|user|licen[cs]e)-?(?:key|token)$/;
/** Where its description says so only. */
const ambiguous = /^(?:x-)?(?:key|token)$/;
/** Too vague beside a way in that the document declares: what belongs to somebody's customer or shop is called so, too. */
const vague = /-(?:key|token)$/;
/**
 * Tokens that make a write safe to repeat, that a form has, or that say how far a list was read; what is another one for each
 * session or request.
 */
const opensNothing =
  /client-?(?:request-?)?token|(?:change|request)-?token|[cx]srf|page|sync|cursor|continuation|next|session-(?:id|state|attributes)|signature/;
const saysKey =
  /\b(?:api|access|app|auth(?:entication|ori[sz]ation)?|developer|subscription|licen[cs]e|secret)[\s_-]*(?:keys?|tokens?)\b/i;
/** Whose key it is: of no use to a model either, where it is asked for with one. */
const owner = /^(?:x-)?(?:app|application|account|client)-?id$/;
/** Characters of a description that are looked at. */
const longestDescription = 500;

/** @param isOpen nothing that the document declares lets the caller in */
export function isKeyParameter(
  { name, in: place, required, description = "", schema }: ApiParameter,
  isOpen: boolean,
): boolean {
  const words = wordsOf(name);
  if (opensNothing.test(words) || (place !== "header" && place !== "query") || !mayBeText(schema.value)) return false;
  if (place === "header" && (!isHeaderName(name) || isTransportHeader(name))) return false;
  if (place === "header" ? isSecretName(name) : inQuery.test(words)) return true;
  if (likely.test(words) && isOpen && required) return true;
  const isLike = likely.test(words) || ambiguous.test(words) || (isOpen && vague.test(words));
  return isLike && saysKey.test(description.slice(0, longestDescription));
}

function mayBeText(schema: JsonValue): boolean {
  const types = isJsonObject(schema) ? typeNames(schema["type"]) : [];
  return types.length === 0 || types.includes("string");
}

/**
 * The keys without which an operation cannot be called, and whose they are.
 * @param isNamed has the caller a credential for it? Then it is sent, though it may be left out.
 */
export function requiredKeys(
  parameters: readonly ApiParameter[],
  isOpen: boolean,
  isNamed: (parameter: ApiParameter) => boolean,
): readonly ApiParameter[] {
  const required = parameters.flatMap((parameter) =>
    parameter.required || (isOpen && isNamed(parameter)) ? [{ ...parameter, required: true }] : [],
  );
  const keys = required.filter((parameter) => isKeyParameter(parameter, isOpen));
  if (keys.length === 0) return [];
  const isOwner = ({ in: place, name }: ApiParameter): boolean =>
    keys.some((key) => key.in === place) && owner.test(wordsOf(name));
  return required.filter((parameter) => keys.includes(parameter) || isOwner(parameter));
}
