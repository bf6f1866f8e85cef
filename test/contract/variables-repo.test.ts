import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeVariableRepo } from "./variables-repo.ts";

describeVariableRepo("file", twoInstancesOfFile);
describeVariableRepo("server", twoInstancesOfServer);
