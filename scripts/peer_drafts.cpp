// What llama.cpp's MTP drafter would draft after every token of a text. Built and run by peer_drafts.py.
//
// It asks llama.cpp's own drafter (common/speculative.h), as its server does: the model evaluates the text, the drafter
// follows every batch, is asked for drafts, and its rows of drafted tokens are removed. The drafter tells tokens, not
// logits, but its context still holds those of the last token that it drafted: so there is one drafter, with a context
// of its own, for each depth, and each must draft what the shallower ones do.
//
// Arguments: model, threads, depth, K/V type (f16 or f32), most positions, most tokens of a text without one given.
// Input, for each prompt: a number of ids and the ids, then the same for the text that follows the prompt; none: greedy
// decoding chooses it. Output: a JSON object for each prompt, one a line.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common.h"
#include "llama.h"
#include "log.h"
#include "speculative.h"

[[noreturn]] static void fail(const std::string & text) {
    fprintf(stderr, "%s\n", text.c_str());
    exit(1);
}

struct choice {
    llama_token id;
    float       margin;
};

// The largest of a row of logits (of equals the first) and how far it is above the second.
static choice choose(const float * logits, int count) {
    if (!logits) {
        fail("there are no logits");
    }
    int   best   = 0;
    float second = -INFINITY;
    for (int i = 1; i < count; i++) {
        if (logits[i] > logits[best]) {
            second = logits[best];
            best   = i;
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    return { best, logits[best] - second };
}

static void print(const char * name, const std::vector<choice> & choices, const char * after) {
    printf("\"%s\":[", name);
    for (size_t i = 0; i < choices.size(); i++) {
        printf("%s%d", i ? "," : "", choices[i].id);
    }
    printf("],\"%s_margins\":[", name);
    for (size_t i = 0; i < choices.size(); i++) {
        printf("%s%.5f", i ? "," : "", choices[i].margin);
    }
    printf("]%s", after);
}

// A drafter that drafts `depth` tokens at a time.
class drafter {
  public:
    drafter(common_params params, int depth, llama_model * model, llama_context * target) :
        depth(depth), settings(std::move(params)) {
        settings.speculative.draft.n_max = depth;
        made = common_speculative_init_from_params(settings, model, target);
        if (!made->context()) {
            fail("llama.cpp makes no drafter of this model; does it have a next-token-prediction block?");
        }
        settings.speculative.draft.ctx_tgt = target;
        settings.speculative.draft.ctx_dft = made->context();
        vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    }

    void begin(const std::vector<llama_token> & prompt) {
        llama_memory_clear(llama_get_memory(made->context()), true);
        // It keeps the last hidden row of the prompt before; a new one does not.
        speculative.reset(common_speculative_init(settings.speculative, 1));
        if (!speculative) {
            fail("llama.cpp's MTP drafter does not start");
        }
        seen = prompt;
    }

    void follow(const common_batch & batch) {
        if (!common_speculative_process(speculative.get(), batch)) {
            fail("llama.cpp's MTP drafter cannot follow the model");
        }
    }

    // Its tokens after `last` at `position`, and the margin of the last of them.
    std::pair<std::vector<llama_token>, float> draft(llama_token last, llama_pos position) {
        std::vector<llama_token> result;
        common_speculative_get_draft_params(speculative.get(), 0) = { true, -1, position, last, &seen, &result };
        common_speculative_draft(speculative.get());
        seen.push_back(last);
        if ((int) result.size() != depth) {
            fail("a drafter of " + std::to_string(depth) + " tokens gave " + std::to_string(result.size()));
        }
        const choice top = choose(llama_get_logits_ith(made->context(), -1), vocabulary);
        if (top.id != result.back()) {
            fail("the drafter's token is not the largest of its logits");
        }
        if (!llama_memory_seq_rm(llama_get_memory(made->context()), 0, position, -1)) {
            fail("the drafter cannot take its rows back");
        }
        return { result, top.margin };
    }

  private:
    int                                depth;
    int                                vocabulary = 0;
    common_params                      settings;
    common_speculative_init_result_ptr made;
    common_speculative_ptr             speculative;
    std::vector<llama_token>           seen;
};

static std::vector<choice> draft(std::vector<drafter> & drafters, llama_token last, llama_pos position) {
    std::vector<choice> drafts;
    for (auto & one : drafters) {
        const auto [tokens, margin] = one.draft(last, position);
        for (size_t i = 0; i < drafts.size(); i++) {
            if (tokens[i] != drafts[i].id) {
                fail("a deeper drafter drafts another token than a shallower one");
            }
        }
        drafts.push_back({ tokens.back(), margin });
    }
    return drafts;
}

class evaluation {
  public:
    evaluation(llama_context * context, std::vector<drafter> & drafters) :
        context(context), drafters(drafters), vocab(llama_model_get_vocab(llama_get_model(context))) {}

    // Evaluates `prompt` and then `text`, or if that is empty up to `most` greedy tokens; prints what was drafted.
    void prompt(const std::vector<llama_token> & prompt, const std::vector<llama_token> & text, int most) {
        llama_memory_clear(llama_get_memory(context), true);
        for (auto & one : drafters) {
            one.begin(prompt);
        }
        std::vector<choice>              greedy{ evaluate(prompt, 0) };
        std::vector<std::vector<choice>> drafts;
        llama_pos                        position = prompt.size();
        const size_t                     tokens   = text.empty() ? most : text.size();
        while (true) {
            const llama_token last = text.empty() ? greedy.back().id : text[drafts.size()];
            if (text.empty() && llama_vocab_is_eog(vocab, last)) {
                break;
            }
            drafts.push_back(draft(drafters, last, position));
            if (drafts.size() == tokens) {
                break;
            }
            greedy.push_back(evaluate({ last }, position++));
        }
        report(greedy, drafts);
    }

  private:
    choice evaluate(const std::vector<llama_token> & tokens, llama_pos position) {
        const size_t chunk = llama_n_batch(context);
        for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
            const size_t end = std::min(tokens.size(), begin + chunk);
            common_batch batch(context);
            for (size_t i = begin; i < end; i++) {
                batch.add(tokens[i], position + i, 0, i + 1 == tokens.size());
            }
            if (llama_process(context, LLAMA_PROCESS_TYPE_DECODE, batch.get())) {
                fail("llama.cpp cannot evaluate the text");
            }
            llama_synchronize(context);
            for (auto & one : drafters) {
                one.follow(batch);
            }
        }
        return choose(llama_get_logits_ith(context, -1), llama_vocab_n_tokens(vocab));
    }

    static void report(const std::vector<choice> & greedy, const std::vector<std::vector<choice>> & drafts) {
        printf("{");
        print("greedy_ids", greedy, ",\"passes\":[");
        for (size_t i = 0; i < drafts.size(); i++) {
            printf("%s{", i ? "," : "");
            print("drafts", drafts[i], "}");
        }
        printf("]}\n");
        fflush(stdout);
    }

    llama_context *        context;
    std::vector<drafter> & drafters;
    const llama_vocab *    vocab;
};

// A number of ids and the ids; false at the end of the input.
static bool read(std::vector<llama_token> & ids) {
    size_t count;
    if (!(std::cin >> count)) {
        return false;
    }
    ids.resize(count);
    for (auto & id : ids) {
        if (!(std::cin >> id)) {
            fail("the input ends too early");
        }
    }
    return true;
}

int main(int count, char ** arguments) {
    if (count != 7) {
        fail("expected: MODEL THREADS DEPTH KV POSITIONS TOKENS");
    }
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    common_log_set_verbosity_thold(LOG_LEVEL_ERROR);

    common_params params;
    auto & draft               = params.speculative.draft;
    params.model.path          = arguments[1];
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = atoi(arguments[2]);
    params.n_ctx               = atoi(arguments[5]);
    params.n_parallel          = 1;
    params.fit_params          = false;
    params.warmup              = false;
    params.speculative.types   = { COMMON_SPECULATIVE_TYPE_DRAFT_MTP };
    draft.backend_sampling     = false; // or the context holds no logits
    if (std::string(arguments[4]) == "f32") {
        params.cache_type_k = params.cache_type_v = draft.cache_type_k = draft.cache_type_v = GGML_TYPE_F32;
        // With flash attention they would be rounded to f16 before use.
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    }

    const auto loaded = common_init_from_params(params);
    if (!loaded || !loaded->model() || !loaded->context()) {
        fail("llama.cpp cannot load " + params.model.path);
    }
    std::vector<drafter> drafters;
    drafters.reserve(atoi(arguments[3]));
    for (int depth = 1; depth <= atoi(arguments[3]); depth++) {
        drafters.emplace_back(common_base_params_to_speculative(params), depth, loaded->model(), loaded->context());
    }
    evaluation               evaluation(loaded->context(), drafters);
    std::vector<llama_token> prompt, text;
    while (read(prompt) && read(text)) {
        evaluation.prompt(prompt, text, atoi(arguments[6]));
    }
}
