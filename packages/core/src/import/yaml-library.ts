/**
 * What is used of the YAML library, in a module of its own, so that it is loaded at the first use. By name:
 * bundles give a CommonJS library that is imported later under `default` alone.
 */
export { isNode, parseDocument, Scalar, visit } from "yaml";
