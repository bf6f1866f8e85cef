/** Scenarios of the suite for servers, run against `/mcp`. */
import type { ConformanceRow } from "./row.ts";

const stateless = ["2026-07-28"];
const sessions = ["2025-06-18", "2025-11-25"];
const all = [...sessions, ...stateless];

const noPrompts = "Prompts are not offered, nor declared.";
const noResources = "Resources are not offered, nor declared; results link to where they are kept.";
const noAsking = "Tools ask clients' users for nothing but approvals; models and directories of clients are not used.";
const noSkills = "The extension for skills is not offered, nor declared.";
const otherInput = "A tool that asks for input of its own; here only approvals are asked for.";

export const serverRows: readonly ConformanceRow[] = [
  { scenario: "server-initialize", revisions: sessions },
  { scenario: "server-session-lifecycle", revisions: ["2025-03-26", ...sessions] },
  {
    scenario: "server-stateless",
    revisions: stateless,
    exceptions: {
      "sep-2575-server-rejects-undeclared-capability":
        "no tool needs a capability of the client: without forms the result says where approval is given, without tasks results are fetched by a tool.",
      "sep-2575-missing-capability-http-400": "the same; `tasks/get` without the extension is refused so.",
    },
  },
  { scenario: "logging-set-level", revisions: sessions, notApplicable: "Logging is not offered, nor declared." },
  { scenario: "ping", revisions: sessions },
  { scenario: "completion-complete", revisions: all, notApplicable: "Completion is for prompts and resources." },
  { scenario: "tools-list", revisions: all },
  { scenario: "tools-call-simple-text", revisions: all },
  { scenario: "tools-call-image", revisions: all },
  { scenario: "tools-call-audio", revisions: all },
  { scenario: "tools-call-embedded-resource", revisions: all },
  { scenario: "tools-call-mixed-content", revisions: all },
  { scenario: "tools-call-with-logging", revisions: sessions, notApplicable: "Logging is not offered, nor declared." },
  { scenario: "tools-call-error", revisions: all },
  { scenario: "tools-call-with-progress", revisions: all },
  { scenario: "tools-call-sampling", revisions: sessions, notApplicable: noAsking },
  { scenario: "tools-call-elicitation", revisions: sessions, notApplicable: otherInput },
  { scenario: "json-schema-2020-12", revisions: ["2025-11-25", ...stateless] },
  { scenario: "elicitation-sep1034-defaults", revisions: ["2025-11-25"], notApplicable: otherInput },
  {
    scenario: "server-sse-polling",
    revisions: ["2025-11-25"],
    notApplicable: "Streams cannot be resumed; results are kept and fetched by their call's id.",
  },
  { scenario: "server-sse-multiple-streams", revisions: ["2025-11-25", ...stateless] },
  { scenario: "elicitation-sep1330-enums", revisions: ["2025-11-25"], notApplicable: otherInput },
  { scenario: "resources-list", revisions: all, notApplicable: noResources },
  { scenario: "resources-read-text", revisions: all, notApplicable: noResources },
  { scenario: "resources-read-binary", revisions: all, notApplicable: noResources },
  { scenario: "resources-templates-read", revisions: all, notApplicable: noResources },
  { scenario: "resources-subscribe", revisions: sessions, notApplicable: noResources },
  { scenario: "resources-unsubscribe", revisions: sessions, notApplicable: noResources },
  { scenario: "sep-2164-resource-not-found", revisions: stateless, notApplicable: noResources },
  { scenario: "prompts-list", revisions: all, notApplicable: noPrompts },
  { scenario: "prompts-get-simple", revisions: all, notApplicable: noPrompts },
  { scenario: "prompts-get-with-args", revisions: all, notApplicable: noPrompts },
  { scenario: "prompts-get-embedded-resource", revisions: all, notApplicable: noPrompts },
  { scenario: "prompts-get-with-image", revisions: all, notApplicable: noPrompts },
  { scenario: "dns-rebinding-protection", revisions: ["2025-11-25", ...stateless] },
  {
    scenario: "caching",
    revisions: stateless,
    exceptions: {
      "sep-2549-prompts-list-caching-hints": "there are no prompts.",
      "sep-2549-resources-list-caching-hints": "there are no resources.",
      "sep-2549-resources-templates-list-caching-hints": "there are no resources.",
    },
  },
  { scenario: "http-header-validation", revisions: stateless },
  { scenario: "http-custom-header-server-validation", revisions: stateless },
  { scenario: "input-required-result-basic-elicitation", revisions: stateless, notApplicable: otherInput },
  { scenario: "input-required-result-basic-sampling", revisions: stateless, notApplicable: noAsking },
  { scenario: "input-required-result-basic-list-roots", revisions: stateless, notApplicable: noAsking },
  { scenario: "input-required-result-request-state", revisions: stateless, notApplicable: otherInput },
  { scenario: "input-required-result-multiple-input-requests", revisions: stateless, notApplicable: otherInput },
  { scenario: "input-required-result-multi-round", revisions: stateless, notApplicable: otherInput },
  { scenario: "input-required-result-missing-input-response", revisions: stateless },
  { scenario: "input-required-result-non-tool-request", revisions: stateless, notApplicable: noPrompts },
  { scenario: "input-required-result-result-type", revisions: stateless },
  { scenario: "input-required-result-unsupported-methods", revisions: stateless },
  { scenario: "input-required-result-tampered-state", revisions: stateless },
  { scenario: "input-required-result-capability-check", revisions: stateless, notApplicable: noAsking },
  { scenario: "input-required-result-ignore-extra-params", revisions: stateless, notApplicable: otherInput },
  { scenario: "input-required-result-validate-input", revisions: stateless },
  { scenario: "tasks-lifecycle", revisions: stateless },
  { scenario: "tasks-capability-negotiation", revisions: stateless },
  { scenario: "tasks-wire-fields", revisions: stateless },
  { scenario: "tasks-request-state-removal", revisions: stateless },
  {
    scenario: "tasks-mrtr-input",
    revisions: stateless,
    notApplicable:
      "Tools that ask while they run; approval is asked for before a task begins, as the extension recommends.",
  },
  { scenario: "tasks-request-headers", revisions: stateless },
  { scenario: "tasks-dispatch-and-envelope", revisions: stateless },
  {
    scenario: "tasks-status-notifications",
    revisions: stateless,
    notApplicable: "The suite skips it until it listens where the extension sends; `notifications/tasks` is offered.",
  },
  {
    scenario: "tasks-required-task-error",
    revisions: stateless,
    notApplicable: "No tool requires tasks: other clients wait, and fetch what comes later by a tool.",
  },
  { scenario: "tasks-mrtr-composition", revisions: stateless, notApplicable: otherInput },
  { scenario: "sep-2640-skills-directory", revisions: stateless, notApplicable: noSkills },
  { scenario: "sep-2640-skills-enumeration", revisions: stateless, notApplicable: noSkills },
  { scenario: "sep-2640-skills-manifest", revisions: stateless, notApplicable: noSkills },
];
