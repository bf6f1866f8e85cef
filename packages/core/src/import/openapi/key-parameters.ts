/**
 * Keys that a document asks for as plain parameters instead of naming a scheme. No model should be told of them, let
 * alone asked for them, so only names that mean nothing else count, and others whose description says so.
 */
import { isHeaderName, isTransportHeader } from "../../blind/header-rules.ts";
import { isSecretName, wordsOf } from "../../secrets/secret-shape.ts";
import type { ApiParameter } from "./operation.ts";

/** In a query, where harmless things have such names more often than among headers. */
const inQuery =
  /^(?:x-)?(?:api|access|auth|oauth|subscription|secret|private|app|application|developer|dev|user|licen[cs]e)-?(?:key|token)$|^hapikey$/;
/**
 * Tokens that make a write safe to repeat, that a form has, or that say how far a list was read; what is another one for each
 * session or request.
 */
const opensNothing =
  /client-?(?:request-?)?token|change-?token|[cx]srf|page|sync|cursor|continuation|next|session-?id|signature/;
/** What a key may be called where its description says that it is one. */
const ambiguous = /^(?:x-)?(?:key|token|code|sid|id|user|account)$|-?(?:key|token)$/;
const saysKey =
  /\b(?:api|access|auth(?:entication|ori[sz]ation)?|developer|subscription|licen[cs]e|secret)[\s_-]*(?:keys?|tokens?)\b/i;
/** Whose key it is: of no use to a model either, where it is asked for with one. */
const owner = /^(?:x-)?(?:app|application|account|client)-?id$/;
/** Characters of a description that are looked at. */
const longestDescription = 500;

export function isKeyParameter({ name, in: place, description = "" }: ApiParameter): boolean {
  const words = wordsOf(name);
  if (opensNothing.test(words) || (place !== "header" && place !== "query")) return false;
  if (place === "header" && (!isHeaderName(name) || isTransportHeader(name))) return false;
  if (place === "header" ? isSecretName(name) : inQuery.test(words)) return true;
  return ambiguous.test(words) && saysKey.test(description.slice(0, longestDescription));
}

/** The keys without which an operation cannot be called, and whose they are. */
export function requiredKeys(parameters: readonly ApiParameter[]): readonly ApiParameter[] {
  const required = parameters.filter((parameter) => parameter.required);
  const keys = required.filter(isKeyParameter);
  if (keys.length === 0) return [];
  const isOwner = ({ in: place, name }: ApiParameter): boolean =>
    keys.some((key) => key.in === place) && owner.test(wordsOf(name));
  return required.filter((parameter) => keys.includes(parameter) || isOwner(parameter));
}
