/** What a source is read into, whatever it was: definitions that wait for their names. */
import type { JsonObject } from "../json.ts";
import type { WantedCredential } from "./credentials.ts";

/** A definition without its name and source. */
export interface Candidate {
  /** Identity within its document. */
  readonly key: string;
  /** For people: `GET /users/{id}`. */
  readonly label: string;
  /** The name it would like to have. */
  readonly wish: string;
  readonly definition: JsonObject;
  readonly auth: CandidateAuth;
  readonly warnings: readonly string[];
  /** The caller chose the name, so it is said where it gets another one. */
  readonly isNamed?: boolean;
}

export interface CandidateAuth {
  readonly schemes: readonly string[];
  readonly alternatives: readonly (readonly string[])[];
  readonly credentials: readonly WantedCredential[];
  /** By what parameters are called: authentication that was set up here for the same places stays. */
  readonly isGuess?: boolean;
}

export const noAuth: CandidateAuth = { schemes: [], alternatives: [], credentials: [] };

/** Something of the document that does not become a tool. */
export interface Skipped {
  readonly key: string;
  readonly label: string;
  readonly reason: string;
}

export interface SourceDocument {
  readonly id: string;
  readonly title: string | null;
  readonly version: string | null;
  /** Where its tools are called; absent for a list of definitions. */
  readonly baseUrl: string | null;
  readonly origin: string | null;
  /** Servers that the document names beside it. */
  readonly otherServers: readonly string[];
}

export interface ReadSource {
  readonly document: SourceDocument;
  readonly candidates: readonly Candidate[];
  readonly skipped: readonly Skipped[];
  /** Keys of everything that the document holds, wanted or not. */
  readonly present: ReadonlySet<string>;
  readonly warnings: readonly string[];
}
