from labelloop.data.splits import clean_split, stratified_split
