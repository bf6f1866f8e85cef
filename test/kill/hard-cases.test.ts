/** Processes of the server form and the deaths that the table of kill points does not have. */
import { describeHardCases } from "./hard-cases.ts";

describeHardCases();
